//! The command `rejoin`: an MCP server whose clients can come back.
//!
//! Never speaks HTTP or MCP's transport itself: that is the library's.

mod embedded;
mod options;
mod serve;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The transport for MCP servers that tells the truth when a client comes back.
#[derive(Debug, Parser)]
#[command(name = "rejoin", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the embedded MCP server (tools: echo, ticker, broadcast, rotate) over Streamable HTTP.
    Serve(Box<options::Serve>),
}

fn main() -> ExitCode {
    let Arguments { command: Command::Serve(options) } = Arguments::parse();
    match serve::run(*options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rejoin: {error}");
            ExitCode::FAILURE
        }
    }
}
