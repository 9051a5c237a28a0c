//! One case after the other, in their order, each within its time.
//!
//! Never runs two at once, and never lets a case's trouble be the next one's.

use std::time::{Duration, Instant};

use super::bench::Bench;
use super::cases::Case;
use super::verdict::{Cost, Finding, Kind, Verdict};
use super::wire::Trouble;

/// What became of one case.
pub(crate) struct Outcome {
    /// The case.
    pub(crate) case: &'static Case,
    /// What it found.
    pub(crate) findings: Vec<Finding>,
    /// Why it was not tested, if it was not.
    pub(crate) untested: Option<String>,
    /// How long it took.
    pub(crate) took: Duration,
    /// What was said on the wire.
    pub(crate) transcript: String,
}

impl Outcome {
    /// What that makes.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.untested.is_some() && self.findings.is_empty() { Verdict::Untested } else { Verdict::of(&self.findings) }
    }
}

/// What became of a run.
pub(crate) struct Ran {
    /// Each case, in order.
    pub(crate) outcomes: Vec<Outcome>,
    /// That the server was gone before the end, and since when.
    pub(crate) died: Option<String>,
}

impl Ran {
    /// Whether something breaks continuity.
    pub(crate) fn is_broken(&self) -> bool {
        self.outcomes.iter().any(|outcome| outcome.verdict() == Verdict::BreaksContinuity)
    }
}

/// Runs these cases.
pub(crate) fn all(bench: &Bench, cases: &[&'static Case], limit: Duration) -> Ran {
    let mut ran = Ran { outcomes: Vec::with_capacity(cases.len()), died: None };
    for case in cases {
        let untested = match &ran.died {
            Some(why) => Some(why.clone()),
            None => lacking(bench, case).or_else(|| rests_on_broken(case, &ran.outcomes)),
        };
        let outcome = match untested {
            Some(why) => {
                Outcome { case, findings: Vec::new(), untested: Some(why), took: Duration::ZERO, transcript: String::new() }
            }
            None => one(bench, case, limit),
        };
        let had_trouble = outcome.verdict() != Verdict::Pass && outcome.took > Duration::ZERO;
        if ran.died.is_none() && had_trouble && is_gone(bench, limit) {
            ran.died = Some(format!("the server was gone after the case {}", case.name));
        }
        ran.outcomes.push(outcome);
    }
    ran
}

fn lacking(bench: &Bench, case: &Case) -> Option<String> {
    case.needs.iter().find_map(|need| need.lacking(bench))
}

/// A case that would only find again what another found.
fn rests_on_broken(case: &Case, outcomes: &[Outcome]) -> Option<String> {
    let broken = |name: &&&str| {
        outcomes.iter().any(|outcome| {
            let failed = outcome.verdict() == Verdict::BreaksContinuity;
            outcome.case.name == **name && (failed || outcome.untested.as_deref().is_some_and(|why| why.starts_with(RESTS)))
        })
    };
    case.rests_on.iter().find(broken).map(|name| format!("{RESTS} {name}, which failed"))
}

const RESTS: &str = "rests on";

fn one(bench: &Bench, case: &'static Case, limit: Duration) -> Outcome {
    bench.io.begin(limit);
    let began = Instant::now();
    let result = (case.run)(bench);
    let mut findings = bench.take_findings();
    let mut untested = None;
    match result {
        Ok(()) => {}
        Err(trouble @ (Trouble::NoAnswer(_) | Trouble::Unreadable(_))) => findings.push(Finding {
            kind: Kind::BreaksContinuity,
            text: trouble.to_string(),
            cost: Some(Cost::Hang),
            boundary: Some(case.boundary),
            mcp: None,
        }),
        Err(trouble) => untested = Some(trouble.to_string()),
    }
    Outcome { case, findings, untested, took: began.elapsed(), transcript: bench.io.transcript.text() }
}

/// Whether no connection can be made any more.
fn is_gone(bench: &Bench, limit: Duration) -> bool {
    bench.io.begin(limit);
    matches!(super::wire::Line::open(&bench.io, false), Err(Trouble::Unreachable(_)))
}
