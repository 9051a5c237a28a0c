//! What a run came to: the one value that every report is made of, and the file that keeps it.
//!
//! Never measures, and never reads a file of another format than its own.

mod distribution;
mod series;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::measure::{ErrorKind, Flows, Measured, Metric, Tally, Violation, millis};

pub(crate) use distribution::{Distribution, Latencies};
pub(crate) use series::{Series, Spreads};

/// The format of the file. Another one is refused: a number that changed its meaning must not be compared.
pub(crate) const FORMAT: u64 = 1;
/// Largest file that is read. Reason: results of a run with all bounds reached are a tenth of it.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Lateness of scheduled operations, at the 99th percentile, from which the storm itself was the bottleneck. Reason: a tenth of what
/// people notice, and far above what a thread with time to spare is late by.
const LATE: Duration = Duration::from_millis(10);
/// Share of the time without time to spare from which the busiest thread was the bottleneck.
const BUSY_SHARE: f64 = 0.1;

/// What the engine knows of a run beside what its threads recorded.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The endpoint. Credentials in it are left out of the results.
    pub(crate) target: String,
    /// The script's name, without a path.
    pub(crate) script_name: String,
    /// The script.
    pub(crate) script_text: String,
    /// The seed that repeats the run.
    pub(crate) seed: u64,
    /// Threads of the storm.
    pub(crate) threads: u32,
    /// Sessions that the script asks for.
    pub(crate) sessions: u64,
    /// What kept the pace.
    pub(crate) pacing: Pacing,
    /// When it began.
    pub(crate) started: SystemTime,
    /// How long it took.
    pub(crate) duration: Duration,
    /// Its parts, in order.
    pub(crate) phases: Vec<Phase>,
    /// What the script wanted to be reached.
    pub(crate) minimums: Vec<Minimum>,
}

/// What kept the pace of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pacing {
    /// A schedule that waits for nobody.
    Open,
    /// Each client waits for its answer.
    Closed,
    /// Some of both.
    Mixed,
}

impl Pacing {
    /// Its word in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open loop",
            Self::Closed => "closed loop",
            Self::Mixed => "open and closed loop",
        }
    }
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// Its name in the script.
    pub(crate) name: String,
    /// Milliseconds since the run began.
    pub(crate) start_ms: u64,
    /// Milliseconds since the run began.
    pub(crate) end_ms: u64,
}

/// A number that the script wanted to be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Minimum {
    /// What it is of.
    pub(crate) name: String,
    /// At least this much.
    pub(crate) wanted: f64,
    /// As much as there was.
    pub(crate) reached: f64,
    /// The unit of both.
    pub(crate) unit: String,
}

impl Minimum {
    /// Whether it was reached.
    pub(crate) fn met(&self) -> bool {
        self.reached >= self.wanted
    }
}

/// The program that ran the storm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The script of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The machine that ran the storm. Never its name, nor a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// Cores that the storm could use.
    pub(crate) cores: u64,
    /// The kernel and its release.
    pub(crate) kernel: String,
    /// The instruction set.
    pub(crate) arch: String,
    /// Whether the target is this machine: then the two shared its cores.
    pub(crate) loopback: bool,
}

/// Whether the storm itself was the bottleneck: then its numbers say more of it than of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saturation {
    pub(crate) saturated: bool,
    /// By what, a sentence each.
    pub(crate) reasons: Vec<String>,
    /// How late scheduled operations began.
    pub(crate) lag_p99_us: u64,
    pub(crate) lag_max_us: u64,
    /// Share of its time in which the busiest thread had no time to spare.
    pub(crate) busiest_thread: f64,
}

/// All that is known of a run that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) format: u64,
    pub(crate) tool: Tool,
    pub(crate) target: String,
    pub(crate) script: Script,
    pub(crate) seed: u64,
    pub(crate) threads: u32,
    pub(crate) sessions: u64,
    pub(crate) pacing: Pacing,
    /// When it began, by RFC 3339.
    pub(crate) started: String,
    pub(crate) duration_ms: u64,
    pub(crate) phases: Vec<Phase>,
    pub(crate) passed: bool,
    pub(crate) minimums: Vec<Minimum>,
    pub(crate) violations_by_name: BTreeMap<String, u64>,
    /// The first ones.
    pub(crate) violations: Vec<Violation>,
    pub(crate) saturation: Saturation,
    /// By the metric's name; only those that were measured.
    pub(crate) latencies: BTreeMap<String, Latencies>,
    pub(crate) totals: Flows,
    pub(crate) peak_connections: u64,
    pub(crate) peak_sessions: u64,
    pub(crate) verdicts: BTreeMap<String, u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) series: Series,
    pub(crate) environment: Environment,
}

impl Results {
    /// What all threads together measured, and the run that they did it in.
    pub(crate) fn new(run: Run, measured: &Measured) -> Self {
        let target = without_credentials(&run.target);
        let mut minimums = run.minimums;
        for minimum in &mut minimums {
            // JSON has no other numbers, and what is not a number was not reached.
            minimum.reached = if minimum.reached.is_finite() { minimum.reached } else { 0.0 };
            minimum.wanted = if minimum.wanted.is_finite() { minimum.wanted } else { f64::MAX };
        }
        let latencies = Metric::ALL.iter().filter_map(|metric| {
            let latencies = Latencies::of(measured.latencies(*metric))?;
            Some((metric.name().to_owned(), latencies))
        });
        Self {
            format: FORMAT,
            tool: Tool { name: "rejoin storm".into(), version: env!("CARGO_PKG_VERSION").into() },
            script: Script { name: run.script_name, text: run.script_text },
            seed: run.seed,
            threads: run.threads,
            sessions: run.sessions,
            pacing: run.pacing,
            started: humantime::format_rfc3339_seconds(run.started).to_string(),
            duration_ms: millis(run.duration),
            phases: run.phases,
            passed: measured.flows().violations == 0 && minimums.iter().all(Minimum::met),
            minimums,
            violations_by_name: by_kind(measured.violations_by_name()),
            violations: measured.violations().to_vec(),
            saturation: Saturation::of(measured),
            latencies: latencies.collect(),
            totals: *measured.flows(),
            peak_connections: measured.peak_connections(),
            peak_sessions: measured.peak_sessions(),
            verdicts: by_kind(measured.verdicts()),
            errors: by_kind(measured.errors()),
            series: Series::of(measured),
            environment: Environment::here(&target),
            target,
        }
    }

    /// Latencies with their names, in the order of reports.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = (&'static str, &Latencies)> {
        Metric::ALL.iter().filter_map(|metric| Some((metric.name(), self.latencies.get(metric.name())?)))
    }

    /// What was counted over time: its name, how many, and how many in each bucket.
    pub(crate) fn counted(&self) -> [(&'static str, u64, &[u64]); 5] {
        let (totals, series) = (&self.totals, &self.series);
        [
            ("connects", totals.connects, &series.connects),
            ("cuts", totals.cuts, &series.cuts),
            ("resumes", totals.resumes, &series.resumes),
            ("calls", totals.calls, &series.calls),
            ("events", totals.events, &series.events),
        ]
    }

    /// The same of bytes.
    pub(crate) fn moved(&self) -> [(&'static str, u64, &[u64]); 2] {
        let (totals, series) = (&self.totals, &self.series);
        [("read", totals.bytes_in, &series.bytes_in), ("written", totals.bytes_out, &series.bytes_out)]
    }

    /// The most at once, of what has a level.
    pub(crate) const fn peaks(&self) -> [(&'static str, u64); 2] {
        [("connections at once", self.peak_connections), ("sessions at once", self.peak_sessions)]
    }

    /// How long the run took, in seconds; never zero, so that it can be divided by.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_millis(self.duration_ms.max(1)).as_secs_f64()
    }

    /// Violations that are counted, but not shown.
    pub(crate) fn violations_left_out(&self) -> u64 {
        self.totals.violations.saturating_sub(self.violations.len() as u64)
    }

    /// Reads a file that `--json` wrote.
    pub(crate) fn read(path: &Path) -> Result<Self, ReadError> {
        let mut text = String::new();
        let file = File::open(path).map_err(ReadError::Io)?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(ReadError::Io)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(ReadError::TooLarge);
        }
        Self::parse(&text)
    }

    /// Reads what [`Results`] are written as.
    pub(crate) fn parse(text: &str) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Probe {
            format: u64,
        }
        // First alone: another format may look different in everything else.
        let Probe { format } = serde_json::from_str(text).map_err(ReadError::NotResults)?;
        if format != FORMAT {
            return Err(ReadError::Format(format));
        }
        let results: Self = serde_json::from_str(text).map_err(ReadError::NotResults)?;
        results.series.check().map_err(ReadError::Wrong)?;
        for (name, latencies) in &results.latencies {
            latencies.check().map_err(|why| ReadError::Wrong(format!("latencies.{name}: {why}")))?;
        }
        Ok(results)
    }
}

/// Why a file is no results.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    TooLarge,
    /// Of this format, where we read [`FORMAT`].
    Format(u64),
    NotResults(serde_json::Error),
    /// It reads well, but says something that cannot be.
    Wrong(String),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::TooLarge => write!(f, "is larger than {FILE_BYTES_MAX} bytes, and so no results of a storm"),
            Self::Format(found) => {
                write!(
                    f,
                    "has results of format {found}; this is rejoin {}, which reads format {FORMAT}",
                    env!("CARGO_PKG_VERSION")
                )
            }
            Self::NotResults(error) => write!(f, "does not read as results of a storm: {error}"),
            Self::Wrong(why) => write!(f, "does not read as results of a storm: {why}"),
        }
    }
}

impl Saturation {
    fn of(measured: &Measured) -> Self {
        let lag = measured.lag().corrected();
        let late = Duration::from_micros(lag.value_at_quantile(0.99));
        let mut reasons = Vec::new();
        if late > LATE {
            reasons.push(format!("one operation in a hundred began {late:?} or more after its time"));
        }
        if measured.busiest() > BUSY_SHARE {
            let percent = measured.busiest() * 100.0;
            reasons.push(format!("for {percent:.0} % of the time a thread of the storm had no time to spare"));
        }
        let exhausted = measured.errors().get(ErrorKind::LocalExhausted.name());
        if exhausted > 0 {
            reasons.push(format!("{exhausted} times this machine had no descriptor, port or memory for one more connection"));
        }
        Self {
            saturated: !reasons.is_empty(),
            reasons,
            lag_p99_us: lag.value_at_quantile(0.99),
            lag_max_us: lag.max(),
            busiest_thread: measured.busiest(),
        }
    }
}

impl Environment {
    fn here(target: &str) -> Self {
        let system = rustix::system::uname();
        Self {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            arch: std::env::consts::ARCH.into(),
            loopback: is_loopback(target),
        }
    }
}

fn by_kind(tally: &Tally) -> BTreeMap<String, u64> {
    tally.iter().map(|(kind, count)| (kind.to_owned(), count)).collect()
}

/// Scheme, authority and the rest of a URL.
fn split(target: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// The URL without user, password, query and fragment, where secrets are put.
fn without_credentials(target: &str) -> String {
    let Some((scheme, authority, rest)) = split(target) else { return target.to_owned() };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

fn is_loopback(target: &str) -> bool {
    let Some((_, authority, _)) = split(target) else { return false };
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
pub(crate) mod tests;
