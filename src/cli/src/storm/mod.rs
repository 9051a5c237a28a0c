//! `rejoin storm`: a scripted reconnect storm against any Streamable HTTP server, that knows what must come back.
//!
//! Never touches a server that is not on this machine unless it is told that the target is its user's own.

mod client;
mod counts;
mod descriptors;
mod engine;
mod library;
mod measure;
mod net;
mod options;
mod script;
mod target;
mod thread;
mod timeline;
mod truth;
mod units;
mod wire;

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use engine::Ran;
use measure::Live;
pub(crate) use options::Storm as Options;
use rejoin::Driver;
use script::Script;
use thread::Storm;

/// The exit code of a run that found a violation, or missed what its script states.
const FAILED: u8 = 1;
/// The exit code of a run that could not be made.
const NOT_RUN: u8 = 2;

/// Runs the storm that the options ask for.
pub(crate) fn run(options: &Options) -> ExitCode {
    match prepare_and_run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("rejoin: {error}");
            ExitCode::from(NOT_RUN)
        }
    }
}

fn prepare_and_run(options: &Options) -> Result<bool, String> {
    if options.list {
        let list = library::list().map_err(|error| error.to_string())?;
        stdout().write_all(list.as_bytes()).map_err(|error| error.to_string())?;
        return Ok(true);
    }
    let script = options.script()?;
    let target = options.target()?;
    descriptors::provide(descriptors::needed(&script))?;
    let chosen = rejoin::shell::choose(Driver::Auto).map_err(|error| error.to_string())?;
    let seed = options.seed();
    let live = Live::group(options.threads());
    eprintln!("{}", announcement(&script, seed, live.len()));
    let storm = Arc::new(Storm {
        requests_left: AtomicU64::new(script.requests),
        bounded: AtomicBool::new(false),
        nonce: nonce(),
        origin: Instant::now(),
        script,
        target,
        seed,
    });
    let ran = engine::run(&storm, live, chosen, options.restart_command.as_deref(), |_| {}).map_err(|error| error.to_string())?;
    let (passed, verdict) = verdict(&storm.script, &ran);
    stdout().write_all(verdict.as_bytes()).map_err(|error| error.to_string())?;
    Ok(passed)
}

/// What is about to happen, and its bounds.
fn announcement(script: &Script, seed: u64, threads: usize) -> String {
    let (length, settle) = (script.length(), script.settle);
    format!(
        "storm {}: {} sessions, {threads} threads, {length:?} and at most {settle:?} to settle, at most {} requests, seed {seed}",
        script.name, script.sessions, script.requests
    )
}

/// A word that no other run has.
fn nonce() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}{:x}", now.as_micros(), std::process::id())
}

/// Holds a run against what its script states.
fn verdict(script: &Script, ran: &Ran) -> (bool, String) {
    let mut text = String::new();
    let mut passed = true;
    let _ = writeln!(
        text,
        "{:?} in {:?}\nverdicts {:?}\nerrors {:?}",
        ran.tally,
        ran.took,
        ran.measured.verdicts(),
        ran.measured.errors()
    );
    for violation in ran.measured.violations() {
        passed = false;
        let _ = writeln!(
            text,
            "violation {} at {} ms: {}\n{}",
            violation.name, violation.at_ms, violation.text, violation.transcript
        );
    }
    for bound in ran.tally.against(&script.least) {
        if bound.reached < bound.stated {
            passed = false;
            let _ = writeln!(text, "too few {}: {}, of at least {}", bound.name, bound.reached, bound.stated);
        }
    }
    for bound in ran.tally.against(&script.most) {
        if bound.reached > bound.stated {
            passed = false;
            let _ = writeln!(text, "too many {}: {}, of at most {}", bound.name, bound.reached, bound.stated);
        }
    }
    if !passed && let Some(needs) = &script.needs {
        let _ = writeln!(text, "the script needs {needs}");
    }
    if let Some(failed) = &ran.failed {
        passed = false;
        let _ = writeln!(text, "{failed}");
    }
    (passed, text)
}
