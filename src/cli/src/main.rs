//! The command `rejoin`: an MCP server whose clients can come back, and a storm of clients that do.
//!
//! Never serves HTTP or MCP's transport itself: that is the library's.

mod embedded;
mod gateway;
mod options;
mod serve;
mod storm;
mod tokens;
mod tools;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// The exit code of a wrong command line, as shells have it.
const USAGE: u8 = 2;

/// The transport for MCP servers that tells the truth when a client comes back.
#[derive(Debug, Parser)]
#[command(name = "rejoin", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve an MCP server over Streamable HTTP: COMMAND, which speaks stdio, or the embedded one (tools: echo, ticker, broadcast, rotate).
    Serve(Box<options::Serve>),
    /// Put a server under a scripted reconnect storm, and hold every stream to what must come back.
    Storm(Box<storm::Options>),
}

fn main() -> ExitCode {
    let options = match Arguments::try_parse() {
        Ok(Arguments { command: Command::Serve(options) }) => options,
        Ok(Arguments { command: Command::Storm(options) }) => return storm::run(&options),
        Err(error) => return explain(&error),
    };
    match serve::run(*options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rejoin: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version as they are; a mistake in one line.
fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A closed pipe wants no help.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let line: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    eprintln!("rejoin: {}", line.join(" ").trim_start_matches("error: "));
    ExitCode::from(USAGE)
}
