//! What a storm shows under way, on stderr: a line that moves on a terminal, a line now and then elsewhere.
//!
//! Never asks a thread of the storm to wait.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::numbers::{count, latency, on_a_line, rate};
use crate::storm::measure::{Live, Snapshot};

/// Between two looks at the threads on a terminal. Reason: as fast as one can read.
const LIVELY: Duration = Duration::from_millis(250);
/// Between two lines elsewhere: a log of an hour has 720.
const CALM: Duration = Duration::from_secs(5);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wished {
    /// A line that moves.
    Live,
    /// A line now and then.
    Plain,
    /// Not at all.
    Silent,
}

impl Wished {
    /// What fits stderr.
    pub(crate) fn of(quiet: bool) -> Self {
        if quiet {
            Self::Silent
        } else if std::io::stderr().is_terminal() {
            Self::Live
        } else {
            Self::Plain
        }
    }
}

/// Progress under way. Dropped or finished, it ends.
#[derive(Debug)]
pub(crate) struct Progress {
    phases: Option<Sender<String>>,
    shower: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to show it. `total` is how long the run is to take, where that is known.
    pub(crate) fn start(live: Vec<Arc<Live>>, origin: Instant, total: Option<Duration>, wished: Wished) -> Self {
        let silent = Self { phases: None, shower: None };
        if wished == Wished::Silent {
            return silent;
        }
        let (phases, coming) = mpsc::channel::<String>();
        let shower = thread::Builder::new().name("progress".into()).spawn(move || {
            let bar = bar(total, wished);
            let period = if wished == Wished::Live { LIVELY } else { CALM };
            let mut before = (origin, Snapshot::default());
            let mut phase = String::new();
            loop {
                let due = before.0.max(origin) + period;
                match coming.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(next) => {
                        phase = on_a_line(&next);
                        continue;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                let now = (Instant::now(), Snapshot::take(&live));
                let text = line(&phase, &before.1, &now.1, now.0.saturating_duration_since(before.0));
                show(bar.as_ref(), &text, now.0.saturating_duration_since(origin));
                before = now;
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        // A run without progress is better than none.
        shower.map_or(silent, |shower| Self { phases: Some(phases), shower: Some(shower) })
    }

    /// A phase began.
    pub(crate) fn phase(&self, name: &str) {
        if let Some(phases) = &self.phases {
            // Whoever shows it may have ended.
            let _ = phases.send(name.to_owned());
        }
    }

    /// Ends it, and waits until nothing more will be written.
    pub(crate) fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.phases = None;
        if let Some(shower) = self.shower.take() {
            // It has nothing to say but that it has ended.
            let _ = shower.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn bar(total: Option<Duration>, wished: Wished) -> Option<ProgressBar> {
    if wished != Wished::Live {
        return None;
    }
    let bar = total.map_or_else(ProgressBar::new_spinner, |total| ProgressBar::new(crate::storm::measure::millis(total)));
    let template = if total.is_some() { "{bar:20} {elapsed:>4} {wide_msg}" } else { "{spinner} {elapsed:>4} {wide_msg}" };
    Some(bar.with_style(ProgressStyle::with_template(template).expect("the template is a constant, and a test makes it")))
}

fn show(bar: Option<&ProgressBar>, text: &str, elapsed: Duration) {
    match bar {
        Some(bar) => {
            bar.set_position(crate::storm::measure::millis(elapsed));
            bar.set_message(text.to_owned());
        }
        None => eprintln!("{:.0?} {text}", Duration::from_secs(elapsed.as_secs())),
    }
}

/// What there is now, and what came since `before`.
fn line(phase: &str, before: &Snapshot, now: &Snapshot, passed: Duration) -> String {
    let per_second = |before: u64, now: u64| rate(now.saturating_sub(before) as f64 / passed.as_secs_f64().max(0.001));
    let mut parts = vec![
        format!("{} connections", count(now.connections)),
        format!("{} sessions", count(now.sessions)),
        format!("verdicts {}", per_second(before.verdicts, now.verdicts)),
        format!("calls {}", per_second(before.calls, now.calls)),
        format!("events {}", per_second(before.events, now.events)),
    ];
    if !now.slowest.is_zero() {
        parts.push(format!("slowest resume {}", latency(u64::try_from(now.slowest.as_micros()).unwrap_or(u64::MAX))));
    }
    for (number, what) in [(now.errors, "errors"), (now.violations, "VIOLATIONS")] {
        if number > 0 {
            parts.push(format!("{} {what}", count(number)));
        }
    }
    let text = parts.join(", ");
    if phase.is_empty() { text } else { format!("{phase}: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_came_since_the_last_one() {
        let before = Snapshot { calls: 100, ..Snapshot::default() };
        let now =
            Snapshot { calls: 600, connections: 1200, slowest: Duration::from_millis(12), violations: 1, ..Snapshot::default() };
        let text = line("storm", &before, &now, Duration::from_millis(500));
        assert_eq!(
            text,
            "storm: 1 200 connections, 0 sessions, verdicts 0.00/s, calls 1 000/s, events 0.00/s, slowest resume 12.0 ms, 1 VIOLATIONS"
        );
    }

    #[test]
    fn whoever_wishes_quiet_gets_it_whatever_stderr_is() {
        assert_eq!(Wished::of(true), Wished::Silent);
        assert_ne!(Wished::of(false), Wished::Silent);
    }

    #[test]
    fn both_templates_are_sound() {
        for total in [None, Some(Duration::from_secs(1))] {
            assert!(bar(total, Wished::Live).is_some());
        }
    }

    #[test]
    fn it_ends_at_once_however_long_its_period() {
        let began = Instant::now();
        let progress = Progress::start(Live::group(1), began, None, Wished::Plain);
        progress.phase("storm");
        progress.finish();
        assert!(began.elapsed() < CALM);
    }
}
