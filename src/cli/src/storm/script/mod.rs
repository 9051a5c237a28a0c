//! A storm's script: who comes, what they call, what happens to them, and what the run must at least have seen.
//!
//! Values only. Reading one from TOML is `read`'s; doing what it says is the engine's.

mod read;

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

pub(crate) use read::BadScript;

use super::counts::Stated;
use super::units::Share;

/// A whole script, checked.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Its file's name without folder and ending.
    pub(crate) name: String,
    /// Its text as it was read.
    pub(crate) text: String,
    /// What it is for, in a line.
    pub(crate) summary: String,
    /// What the server must be set to, for the script to reach what it states; said when it does not.
    pub(crate) needs: Option<String>,
    /// Sessions of the population.
    pub(crate) sessions: u32,
    /// What each session calls, one call after the other.
    pub(crate) call: Call,
    /// What happens, in order.
    pub(crate) phases: Vec<Phase>,
    /// How long calls in flight may take to end after the last phase.
    pub(crate) settle: Duration,
    /// Requests of the whole run; the one after it is not sent, and the run fails.
    pub(crate) requests: u64,
    /// What the run must at least have seen.
    pub(crate) least: Stated,
    /// What it may at most have seen.
    pub(crate) most: Stated,
}

/// What a session calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// The tool.
    pub(crate) tool: Tool,
    /// Wait between an answer and the next call, spread by ±50 %.
    pub(crate) pause: Duration,
    /// How long a connected client waits for the next event that is due before it says that the server hangs.
    pub(crate) patience: Duration,
}

/// A tool and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tool {
    /// One that numbers what it says, as the embedded server's `ticker` does: continuity is checked tick by tick.
    Ticker(Ticker),
    /// Any other: ids, answers and their number are checked.
    Other {
        /// Its name.
        name: String,
        /// Its arguments, the same for each call.
        arguments: Map<String, Value>,
    },
}

/// The arguments of `ticker`; each call adds a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticker {
    /// Ticks of one call.
    pub(crate) ticks: u32,
    /// Time between two.
    pub(crate) interval: Duration,
    /// Padding of each, in bytes.
    pub(crate) payload: usize,
}

/// A part of the storm.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// Its name, for progress and reports.
    pub(crate) name: String,
    /// How long it takes.
    pub(crate) length: Duration,
    /// What happens in it.
    pub(crate) kind: Kind,
    /// What is called from this phase on, where that changes.
    pub(crate) call: Option<Call>,
}

/// What happens in a phase.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Sessions begin, evenly spread, up to this share of the population.
    Ramp { share: Share },
    /// Nothing but calls.
    Steady,
    /// Connections are cut.
    Cut(Cut),
    /// Sessions read no faster than `rate` bytes a second each.
    Slow { share: Share, rate: usize },
    /// Sessions end their call and are quiet for the phase; then they come back with what they know.
    Lapse { share: Share },
    /// Sessions are cut as in a `Cut`, and show a bad cursor before they come back with the right one.
    Forge { cut: Cut, cursors: Vec<Forgery> },
    /// The restart command runs, once, at the phase's start.
    Restart,
}

/// How connections are cut, and how their sessions come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cut {
    /// Which part of the sessions.
    pub(crate) share: Share,
    /// What the server sees.
    pub(crate) how: How,
    /// How often in the phase, at the beginning of equal parts of it.
    pub(crate) times: u32,
    /// Whether all are cut at one instant, or each at its own within the part.
    pub(crate) at_once: bool,
    /// When they come back.
    pub(crate) back: Back,
}

/// What a server sees of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A reset.
    Rst,
    /// An orderly end.
    Fin,
    /// Nothing: the connection stays, and nobody reads.
    Silence,
    /// One of the three, by chance.
    Mixed,
}

/// When a session that was cut comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// When the server's `retry` and the back-off say.
    Retry,
    /// That long after the cut, all at one instant.
    Herd { away: Duration },
    /// That long after the cut and up to `spread` later, by chance.
    Jittered { away: Duration, spread: Duration },
}

/// A cursor that a client should not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgery {
    /// A genuine one with one character changed. Must be refused.
    Forged,
    /// Another session's genuine one. Must be refused.
    Foreign,
    /// No cursor at all, but bytes. Must be refused.
    Garbage,
    /// An earlier genuine one of the same stream: what follows it must come again, exactly, or a `resync`.
    Stale,
}

impl Script {
    /// Reads a script; `from` is what messages call it.
    pub(crate) fn parse(from: &str, text: &str) -> Result<Self, BadScript> {
        read::script(from, text)
    }

    /// Reads a script's file.
    pub(crate) fn read(path: &Path) -> Result<Self, BadScript> {
        let from = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| BadScript::unread(&from, &error))?;
        Self::parse(&from, &text)
    }

    /// The same script for another number of sessions: what it states scales with them.
    pub(crate) fn with_sessions(mut self, sessions: u32) -> Self {
        self.least = self.least.scaled(self.sessions, sessions, false);
        self.most = self.most.scaled(self.sessions, sessions, true);
        self.sessions = sessions;
        self
    }

    /// The same script, faster or slower: every length in it but patience and settling is multiplied.
    pub(crate) fn with_time_scale(mut self, scale: f64) -> Self {
        scale_call(&mut self.call, scale);
        for phase in &mut self.phases {
            phase.length = phase.length.mul_f64(scale);
            if let Some(call) = &mut phase.call {
                scale_call(call, scale);
            }
            if let Kind::Cut(cut) | Kind::Forge { cut, .. } = &mut phase.kind {
                match &mut cut.back {
                    Back::Retry => {}
                    Back::Herd { away } => *away = away.mul_f64(scale),
                    Back::Jittered { away, spread } => {
                        *away = away.mul_f64(scale);
                        *spread = spread.mul_f64(scale);
                    }
                }
            }
        }
        self
    }

    /// The same script with another tool, for servers that have no `ticker`.
    pub(crate) fn with_tool(mut self, name: &str, arguments: &Map<String, Value>) -> Self {
        let tool = Tool::Other { name: name.to_owned(), arguments: arguments.clone() };
        self.call.tool = tool.clone();
        for call in self.phases.iter_mut().filter_map(|phase| phase.call.as_mut()) {
            call.tool = tool.clone();
        }
        self
    }

    /// The length of all phases.
    pub(crate) fn length(&self) -> Duration {
        self.phases.iter().map(|phase| phase.length).sum()
    }

    /// Whether a phase needs the restart command.
    pub(crate) fn restarts(&self) -> bool {
        self.phases.iter().any(|phase| phase.kind == Kind::Restart)
    }
}

fn scale_call(call: &mut Call, scale: f64) {
    call.pause = call.pause.mul_f64(scale);
    if let Tool::Ticker(ticker) = &mut call.tool {
        ticker.interval = ticker.interval.mul_f64(scale);
    }
}
