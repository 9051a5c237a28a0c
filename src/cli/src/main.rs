//! The command `rejoin`.
//!
//! Never does anything that the library of this package does not.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    rejoin_cli::main()
}
