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
mod report;
mod results;
mod script;
mod thread;
mod timeline;
mod truth;
mod units;

use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use counts::Bound;
use engine::Ran;
use measure::{Live, millis};
pub(crate) use options::Storm as Options;
use rejoin::Driver;
use report::progress::{Progress, Wished};
use results::{Minimum, Pacing, Phase, Results, Run};
use script::Script;
use thread::Storm;

/// The exit code of a run that found a violation, or missed what its script states.
const FAILED: u8 = 1;
/// The exit code of a run that could not be made.
const NOT_RUN: u8 = 2;

/// Runs the storm that the options ask for, or reads one that is over.
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
    if let Some(read) = options.reading.run(&options.outputs) {
        return read.map(|()| true);
    }
    if options.list {
        let list = library::list().map_err(|error| error.to_string())?;
        stdout().write_all(list.as_bytes()).map_err(|error| error.to_string())?;
        return Ok(true);
    }
    let script = options.script()?;
    let target = options.target()?;
    options.outputs.prepare()?;
    descriptors::provide(descriptors::needed(&script))?;
    let chosen = rejoin::shell::choose(Driver::Auto).map_err(|error| error.to_string())?;
    let seed = options.seed();
    let live = Live::group(options.threads());
    eprintln!("{}", announcement(&script, seed, live.len()));
    let started = SystemTime::now();
    let storm = Arc::new(Storm {
        requests_left: AtomicU64::new(script.requests),
        bounded: AtomicBool::new(false),
        under_way: AtomicU64::new(0),
        unreachable: OnceLock::new(),
        nonce: nonce(),
        origin: Instant::now(),
        script,
        target,
        seed,
    });
    let progress = Progress::start(live.clone(), storm.origin, Some(storm.script.length()), Wished::of(options.quiet));
    let threads = u32::try_from(live.len()).unwrap_or(u32::MAX);
    let ran = engine::run(&storm, live, chosen, options.restart_command.as_deref(), |name| progress.phase(name));
    progress.finish();
    let ran = ran.map_err(|error| error.to_string())?;
    let complaints = complaints(&storm.script, &ran);
    let mut results = results(&storm, &ran, threads, started);
    results.passed &= complaints.is_empty();
    options.outputs.write(&results)?;
    for complaint in &complaints {
        eprintln!("rejoin: {complaint}");
    }
    if let Some(why) = storm.unreachable.get().filter(|_| !results.passed) {
        eprintln!("rejoin: the first connection that could not be made said: {why}");
    }
    Ok(results.passed)
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

/// What the run came to, for reports.
fn results(storm: &Storm, ran: &Ran, threads: u32, started: SystemTime) -> Results {
    let script = &storm.script;
    let phase =
        |name: &str, from: Duration, to: Duration| Phase { name: name.into(), start_ms: millis(from), end_ms: millis(to) };
    let mut phases: Vec<_> =
        timeline::phases(script).map(|placed| phase(&placed.phase.name, placed.from, placed.to.min(ran.took))).collect();
    if ran.took > script.length() {
        phases.push(phase("settling", script.length(), ran.took));
    }
    // Counts are far below what a float holds exactly.
    let minimum = |Bound { name, stated, reached }: Bound| Minimum {
        name: name.into(),
        wanted: stated as f64,
        reached: reached as f64,
        unit: String::new(),
    };
    let run = Run {
        target: storm.target.url.clone(),
        script_name: script.name.clone(),
        script_text: script.text.clone(),
        seed: storm.seed,
        threads,
        sessions: script.sessions.into(),
        // Cuts and returns follow the script's clock, calls the answers before them.
        pacing: Pacing::Mixed,
        started,
        duration: ran.took,
        phases,
        minimums: ran.tally.against(&script.least).into_iter().map(minimum).collect(),
    };
    Results::new(run, &ran.measured)
}

/// What is wrong with a run, beside its violations.
fn complaints(script: &Script, ran: &Ran) -> Vec<String> {
    let few = ran.tally.against(&script.least).into_iter().filter(|bound| bound.reached < bound.stated);
    let many = ran.tally.against(&script.most).into_iter().filter(|bound| bound.reached > bound.stated);
    let few = few.map(|Bound { name, stated, reached }| format!("too few {name}: {reached}, of at least {stated}"));
    let many = many.map(|Bound { name, stated, reached }| format!("too many {name}: {reached}, of at most {stated}"));
    let mut complaints: Vec<_> = few.chain(many).collect();
    if let Some(needs) = script.needs.as_ref().filter(|_| !complaints.is_empty()) {
        complaints.push(format!("the script {} needs {needs}", script.name));
    }
    complaints.extend(ran.failed.clone());
    complaints
}
