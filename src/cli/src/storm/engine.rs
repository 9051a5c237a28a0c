//! Runs a storm: a thread a core, each with its runtime and its part of the sessions, and the clock of the script above them.
//!
//! Never decides what a session does.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rejoin::shell::{self, Chosen};

use super::client::Client;
use super::counts::Tally;
use super::measure::{Live, Measured, Recorder, thread_cpu_time};
use super::script::Kind;
use super::thread::{Storm, Thread};
use super::timeline;
use crate::restart;

/// How often a thread looks at its own processor time.
const LOOK: Duration = Duration::from_millis(250);

/// How often a thread looks whether its sessions are through.
const POLL: Duration = Duration::from_millis(20);

/// What a run came to.
pub(super) struct Ran {
    /// What was measured.
    pub(super) measured: Measured,
    /// What was counted.
    pub(super) tally: Tally,
    /// How long it took.
    pub(super) took: Duration,
    /// Why the run is not what the script says, if it is not.
    pub(super) failed: Option<String>,
}

/// Runs it. `live` has one for each thread; `phase` is told each phase as it begins.
pub(super) fn run(
    storm: &Arc<Storm>,
    live: Vec<Arc<Live>>,
    chosen: Chosen,
    restart: Option<&str>,
    phase: impl Fn(&str),
) -> io::Result<Ran> {
    let threads = u32::try_from(live.len()).unwrap_or(u32::MAX);
    let mut running = Vec::new();
    for (number, live) in (0..threads).zip(live) {
        running.push(start(Arc::clone(storm), live, chosen, number, threads)?);
    }
    let mut failed = conduct(storm, restart, phase, &running);
    let mut total: Option<(Measured, Tally)> = None;
    for thread in running {
        let Ok((measured, tally)) = thread.join() else {
            failed = Some("a thread of the storm panicked".to_owned());
            continue;
        };
        total = Some(match total.take() {
            None => (measured, tally),
            Some((all, counts)) => (all.merge(measured), counts.plus(&tally)),
        });
    }
    let (measured, tally) = total.ok_or_else(|| io::Error::other("every thread of the storm panicked"))?;
    if storm.bounded.load(Ordering::Relaxed) {
        failed = Some(format!("the bound of {} requests was reached: raise `requests` in the script", storm.script.requests));
    }
    match storm.under_way.load(Ordering::Relaxed) {
        0 => {}
        calls => {
            let settle = storm.script.settle;
            failed.get_or_insert(format!(
                "{calls} calls were still going on {settle:?} after the last phase: give them more to `settle`"
            ));
        }
    }
    Ok(Ran { measured, tally, took: storm.origin.elapsed(), failed })
}

/// Starts one thread, and waits until its runtime is there.
fn start(
    storm: Arc<Storm>,
    live: Arc<Live>,
    chosen: Chosen,
    number: u32,
    threads: u32,
) -> io::Result<JoinHandle<(Measured, Tally)>> {
    let (tell, told) = mpsc::channel();
    let body = move || {
        let mut result = None;
        // Whoever started us waits for this word.
        let ready = |built| drop(tell.send(built));
        shell::run(chosen, ready, || async { result = Some(live_through(storm, live, number, threads).await) });
        result.unwrap_or_else(|| panic!("no runtime"))
    };
    let thread = thread::Builder::new().name(format!("storm-{number}")).spawn(body)?;
    told.recv().unwrap_or_else(|_| Err(io::Error::other("the runtime did not start")))?;
    Ok(thread)
}

/// The sessions of one thread, until the last is over.
async fn live_through(storm: Arc<Storm>, live: Arc<Live>, number: u32, threads: u32) -> (Measured, Tally) {
    let (script, seed) = (&storm.script, storm.seed);
    let ours = (number..script.sessions).step_by(threads as usize);
    let scheduled: Vec<_> = ours.filter_map(|session| Some((session, timeline::schedule(script, seed, session)?))).collect();
    let count = u32::try_from(scheduled.len()).unwrap_or(u32::MAX);
    let thread = Rc::new(Thread::new(Arc::clone(&storm), Recorder::new(storm.origin, live), count));
    for (session, schedule) in scheduled {
        drop(monoio::spawn(Client::new(Rc::clone(&thread), session, schedule).run()));
    }
    while thread.left.get() > 0 {
        monoio::time::sleep(LOOK).await;
        let now = Instant::now();
        thread.record(|recorder| recorder.tick(now, thread_cpu_time()));
    }
    // The last session counted itself out in its last turn, and dropped its share then.
    while Rc::strong_count(&thread) > 1 {
        monoio::time::sleep(POLL).await;
    }
    let thread = Rc::into_inner(thread).unwrap_or_else(|| panic!("the only owner"));
    let (recorder, tally) = thread.into_parts();
    (recorder.finish(Instant::now()), tally)
}

/// Follows the script's clock: says each phase, and runs the restart command where it is due. Gives what went wrong.
fn conduct(
    storm: &Storm,
    restart: Option<&str>,
    phase: impl Fn(&str),
    running: &[JoinHandle<(Measured, Tally)>],
) -> Option<String> {
    let mut failed = None;
    for placed in timeline::phases(&storm.script) {
        wait_until(storm.at(placed.from), running);
        phase(&placed.phase.name);
        if placed.phase.kind == Kind::Restart
            && let Some(command) = restart
            && let Err(why) = restart::with(command, storm.at(placed.to))
        {
            failed.get_or_insert(why);
        }
    }
    wait_until(storm.ends(), running);
    phase("settling");
    failed
}

/// Waits for an instant, or until no session is left that it matters to.
fn wait_until(at: Instant, running: &[JoinHandle<(Measured, Tally)>]) {
    while Instant::now() < at && !running.iter().all(JoinHandle::is_finished) {
        thread::sleep(at.saturating_duration_since(Instant::now()).min(LOOK));
    }
}
