//! `rejoin check`: an audit of how any Streamable HTTP server answers clients that come back, case by case.
//!
//! Never goes on without a bound (each wait, each case, the requests of a run), and never touches a server that is not on this machine
//! unless it is told that the target is its user's own.

mod bench;
mod cases;
mod fit;
mod judge;
mod options;
mod report;
mod request;
mod run;
mod sentences;
mod server;
mod session;
mod stream;
mod transcript;
mod verdict;
mod wire;

use std::process::ExitCode;

pub(crate) use options::Check as Options;

use bench::Bench;
use report::results::Results;
use wire::Io;

/// The exit code where something breaks continuity.
const BROKEN: u8 = 1;
/// The exit code where it could not run, or not to its end.
const NOT_RUN: u8 = 2;

/// Runs the check that the options ask for.
pub(crate) fn run(options: &Options) -> ExitCode {
    match check(options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rejoin: {}", crate::shown::on_a_line(&error));
            ExitCode::from(NOT_RUN)
        }
    }
}

fn check(options: &Options) -> Result<ExitCode, String> {
    if options.list {
        report::list(&cases::all())?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = options.chosen()?;
    let target = options.target()?;
    let io = Io::new(target, options.patience, options.max_requests);
    io.begin(options.time_limit);
    let mut bench = Bench::new(io, options.settings());
    server::learn(&mut bench, &options.tools())?;
    let mut ran = run::all(&bench, &chosen, options.time_limit);
    if let Some(name) = &options.explain {
        report::explain(&mut ran, name)?;
    } else {
        report::write(options.format, &Results::new(&bench, &ran))?;
    }
    if let Some(why) = ran.died {
        return Err(why);
    }
    Ok(if ran.is_broken() { ExitCode::from(BROKEN) } else { ExitCode::SUCCESS })
}
