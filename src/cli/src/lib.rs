//! The command `rejoin` as a library: what `main` calls, and the declaration of its options, which tests go by.
//!
//! Never serves MCP's transport itself: that is the server crate's.

mod about;
mod admin;
mod bounds;
mod check;
mod config;
mod gateway;
mod key;
mod logging;
mod notify;
mod options;
mod page;
mod restart;
mod serve;
mod shown;
mod storm;
mod target;
mod tokens;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{ConfigError, Given, Settings};

/// The exit code of a wrong command line or configuration, as shells have it: to start again will not help.
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
    /// Serve an MCP server over Streamable HTTP: COMMAND, which speaks stdio, or without one a server with everything that MCP offers.
    #[command(after_help = config::HELP)]
    Serve(Given),
    /// Put a server under a scripted reconnect storm, and hold every stream to what must come back.
    Storm(Box<storm::Options>),
    /// Audit how a server answers clients that come back: any server, case by case.
    Check(Box<check::Options>),
    /// Print the completions of a shell, for it to load.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a page for `man`.
    Man {
        /// The command to describe [default: all of them in short].
        command: Option<String>,
    },
}

/// The declaration of the command line: whatever lists commands or options lists these.
fn command() -> clap::Command {
    Arguments::command()
}

/// The declaration of what `rejoin serve` can be set: each of these is a flag (or a positional argument), a key of the configuration
/// file and a variable of the environment.
pub fn options() -> clap::Command {
    config::options()
}

/// Runs the command that this process was started as.
pub fn main() -> ExitCode {
    let outcome = command().try_get_matches().and_then(|matches| {
        let arguments = Arguments::from_arg_matches(&matches)?;
        Ok((arguments.command, matches))
    });
    match outcome {
        Ok((Command::Serve(given), matches)) => {
            let line = matches.subcommand_matches("serve").expect("what was given to `serve` was read from its own matches");
            serve(&given, line)
        }
        Ok((Command::Storm(options), _)) => storm::run(&options),
        Ok((Command::Check(options), _)) => check::run(&options),
        Ok((Command::Completions { shell }, _)) => printed(&about::completions(shell)),
        Ok((Command::Man { command }, _)) => man(command.as_deref()),
        Err(error) => explain(&error),
    }
}

/// `rejoin man`.
fn man(name: Option<&str>) -> ExitCode {
    match about::man(name) {
        Ok(Some(text)) => printed(&text),
        Ok(None) => {
            eprintln!("rejoin: no command `{}`", config::one_line(name.unwrap_or_default()));
            ExitCode::from(USAGE)
        }
        Err(error) => failed(&error),
    }
}

/// `rejoin serve`, by all that was given.
fn serve(given: &Given, line: &ArgMatches) -> ExitCode {
    if given.explain_revisions {
        return printed(rejoin::explain_revisions().as_bytes());
    }
    let settings = match Settings::gather(given, line, std::env::vars_os()) {
        Ok(settings) => settings,
        Err(error) => return misconfigured(&error),
    };
    if given.print_config {
        for warning in settings.warnings() {
            eprintln!("rejoin: {warning}");
        }
        let printing = printed(settings.to_string().as_bytes());
        // What is wrong is seen best beside all that was given.
        return settings.options().err().map_or(printing, |error| misconfigured(&error));
    }
    let options = match settings.options() {
        Ok(options) => options,
        Err(error) => return misconfigured(&error),
    };
    match serve::run(options, settings.warnings()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error),
    }
}

/// Writes to standard output. A closed pipe wants no more, which is no failure.
fn printed(text: &[u8]) -> ExitCode {
    match about::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("rejoin: {}", config::one_line(&error.to_string()));
    ExitCode::FAILURE
}

fn misconfigured(error: &ConfigError) -> ExitCode {
    eprintln!("rejoin: {}", config::one_line(&error.to_string()));
    ExitCode::from(USAGE)
}

/// Help and version as they are; a mistake in one line.
fn explain(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayVersion {
        return printed(about::version().as_bytes());
    }
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_declaration_holds_together() {
        super::command().debug_assert();
    }
}
