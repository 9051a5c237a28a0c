//! The command `rejoin`.
//!
//! Never does anything that the library of this package does not.

use std::process::ExitCode;

fn main() -> ExitCode {
    rejoin_cli::main()
}
