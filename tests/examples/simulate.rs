//! Runs the simulation from a command line: `simulate --seed N --steps N [--seeds N] [--canary NAME] [--require N]`.
//!
//! Exits with 1 and the seed, the step and the last part of the transcript when something is broken.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rejoin_tests::sim::{self, Coverage, Meter, Violation};

/// The allocator's word, for this thread.
struct Counted;

impl Meter for Counted {
    fn measure(&self, work: &mut dyn FnMut()) -> i64 {
        allocation_counter::measure(work).bytes_current
    }
}

struct Options {
    seed: u64,
    seeds: u64,
    steps: u64,
    canary: Option<String>,
    coverage: bool,
    /// How often everything that the simulation can reach must be reached.
    require: u64,
    lines: usize,
    keep_going: bool,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { seed: 1, seeds: 1, steps: 100_000, canary: None, coverage: false, require: 0, lines: 60, keep_going: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.replace('_', "").parse::<u64>().map_err(|_| format!("{text} is not a number"));
        match word.as_str() {
            "--seed" => options.seed = number(value()?)?,
            "--seeds" => options.seeds = number(value()?)?,
            "--steps" => options.steps = number(value()?)?,
            "--canary" => options.canary = Some(value()?),
            "--coverage" => options.coverage = true,
            "--require" => options.require = number(value()?)?,
            "--keep-going" => options.keep_going = true,
            "--lines" => options.lines = number(value()?)? as usize,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn plant(name: Option<&str>) -> Result<(), String> {
    let Some(name) = name else { return Ok(()) };
    let canary = rejoin_proto::canary::Canary::parse(name).ok_or_else(|| format!("no canary is called {name}"))?;
    #[cfg(feature = "canary")]
    {
        rejoin_proto::canary::plant(Some(canary));
        Ok(())
    }
    #[cfg(not(feature = "canary"))]
    Err(format!("{canary:?} cannot be planted in a build without the feature `canary`"))
}

fn main() -> ExitCode {
    let options = match options().and_then(|options| plant(options.canary.as_deref()).map(|()| options)) {
        Ok(options) => Arc::new(options),
        Err(why) => {
            eprintln!("simulate: {why}");
            return ExitCode::from(2);
        }
    };
    let next = Arc::new(AtomicU64::new(options.seed));
    let found = Arc::new(Mutex::new((Coverage::default(), Vec::<Violation>::new(), 0u64)));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(options.seeds as usize);
    let work = |_| {
        let (options, next, found) = (options.clone(), next.clone(), found.clone());
        std::thread::spawn(move || {
            plant(options.canary.as_deref()).expect("it was planted in the first thread too");
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= options.seed + options.seeds
                    || found.lock().expect("no thread panics with it").1.iter().any(|_| !options.keep_going)
                {
                    return;
                }
                let result = sim::run(seed, options.steps, &Counted, false);
                let mut found = found.lock().expect("no thread panics with it");
                match result {
                    Ok(report) => {
                        found.0.add(&report.coverage);
                        found.2 += report.steps;
                        if options.seeds == 1 {
                            println!("trace {:016x}", report.trace);
                        }
                    }
                    Err(violation) => {
                        if options.keep_going {
                            println!("seed {}, step {}: {}", violation.seed, violation.step, violation.what);
                        }
                        found.1.push(*violation);
                    }
                }
            }
        })
    };
    let threads: Vec<_> = (0..threads).map(work).collect();
    let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    let found = found.lock().expect("no thread panics with it");
    let (coverage, violations, steps) = &*found;
    if options.coverage {
        print!("{coverage}");
    }
    if let Some(violation) = violations.iter().min_by_key(|violation| violation.seed) {
        let Violation { seed, step, what, .. } = violation;
        if options.keep_going {
            println!("{} of {} seeds broken", violations.len(), options.seeds);
            return ExitCode::FAILURE;
        }
        // The same again, with words.
        if let Err(again) = sim::run(*seed, options.steps, &Counted, true) {
            let from = again.transcript.len().saturating_sub(options.lines);
            again.transcript[from..].iter().for_each(|line| println!("{line}"));
        }
        println!("seed {seed}, step {step}: {what}");
        return ExitCode::FAILURE;
    }
    let missing = coverage.missing(options.require);
    if panicked > 0 || !missing.is_empty() {
        missing.iter().for_each(|what| println!("not reached often enough: {what}"));
        return ExitCode::FAILURE;
    }
    println!("{} seeds, {steps} steps, no violation", options.seeds);
    ExitCode::SUCCESS
}
