//! What a check came to, as one value: every report is made of it.
//!
//! Never has a secret: fields that the user gave are not in it.

use serde::Serialize;

use crate::check::bench::Bench;
use crate::check::run::{Outcome, Ran};
use crate::check::verdict::{Finding, Verdict};

/// The version of this format; programs that read it go by it.
const FORMAT: u32 = 1;

/// A whole check.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    /// The version of this format.
    pub(crate) format: u32,
    /// The version of rejoin.
    pub(crate) rejoin: &'static str,
    /// The URL.
    pub(crate) target: String,
    /// The server's name and version, as it says.
    pub(crate) server: String,
    /// The revision that it negotiated.
    pub(crate) revision: String,
    /// The tool that was called; none where none fitted.
    pub(crate) tool: Option<String>,
    /// Whether nothing breaks continuity, and the check came to its end.
    pub(crate) passed: bool,
    /// Why it did not come to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) died: Option<String>,
    /// Each case, in order.
    pub(crate) cases: Vec<Row>,
}

/// One case.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its group.
    pub(crate) group: &'static str,
    /// What became of it.
    pub(crate) verdict: Verdict,
    /// What was done and what must come.
    pub(crate) expects: &'static str,
    /// The place on the boundary page.
    pub(crate) boundary: &'static str,
    /// What it found.
    pub(crate) findings: Vec<Finding>,
    /// Why it was not tested, or not to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) untested: Option<String>,
    /// Milliseconds that it took.
    pub(crate) took_ms: u64,
    /// What was said on the wire; empty where it passed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) transcript: String,
}

impl Results {
    /// What a run came to.
    pub(crate) fn new(bench: &Bench, ran: &Ran) -> Self {
        let known = &bench.known;
        Self {
            format: FORMAT,
            rejoin: env!("CARGO_PKG_VERSION"),
            target: bench.io.target.url.clone(),
            server: known.name.clone(),
            revision: known.revision.clone(),
            tool: known.fit.as_ref().ok().map(|fit| fit.name.clone()),
            passed: !ran.is_broken() && ran.died.is_none(),
            died: ran.died.clone(),
            cases: ran.outcomes.iter().map(Row::of).collect(),
        }
    }

    /// How many cases have this verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|row| row.verdict == verdict).count()
    }
}

impl Row {
    fn of(outcome: &Outcome) -> Self {
        let verdict = outcome.verdict();
        Self {
            name: outcome.case.name,
            group: outcome.case.group,
            verdict,
            expects: outcome.case.expects,
            boundary: outcome.case.boundary,
            findings: outcome.findings.clone(),
            untested: outcome.untested.clone(),
            took_ms: outcome.took.as_millis() as u64,
            transcript: if verdict == Verdict::Pass { String::new() } else { outcome.transcript.clone() },
        }
    }
}
