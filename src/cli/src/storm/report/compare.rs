//! Two runs beside each other: what became of each number, and what else differs.
//!
//! Never says which run is better: that is for whoever knows what was changed.

use std::io::{self, Write};

use serde::Serialize;

use super::numbers::{count, latency, number, on_a_line, ratio};
use super::text::{BAD, DIM, DOUBTFUL, GOOD, STRONG};
use crate::storm::results::{Latencies, Results};

/// Ratios this near to one are not pointed out. Reason: runs of the same thing differ by as much.
const SAME: f64 = 0.05;

/// One number of both runs.
#[derive(Debug, PartialEq, Serialize)]
struct Pair {
    name: String,
    a: Option<f64>,
    b: Option<f64>,
    /// b for each one of a; null where there is no such number.
    ratio: Option<f64>,
}

impl Pair {
    fn new(name: impl Into<String>, a: Option<f64>, b: Option<f64>) -> Self {
        let ratio = a.zip(b).and_then(|(a, b)| ratio(a, b));
        Self { name: name.into(), a, b, ratio }
    }
}

/// A metric of both runs, in microseconds.
#[derive(Debug, PartialEq, Serialize)]
struct Metric {
    name: String,
    percentiles: Vec<Pair>,
}

/// Two runs beside each other.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// What makes the runs hard to compare, a sentence each.
    differences: Vec<String>,
    latencies_us: Vec<Metric>,
    /// In a second.
    rates: Vec<Pair>,
    counts: Vec<Pair>,
    verdicts: Vec<Pair>,
    errors: Vec<Pair>,
}

impl Comparison {
    pub(super) fn of(a: &Results, b: &Results) -> Self {
        let rate = |name, part: fn(&Results) -> u64| {
            Pair::new(name, Some(part(a) as f64 / a.seconds()), Some(part(b) as f64 / b.seconds()))
        };
        let whole = |name, part: fn(&Results) -> u64| Pair::new(name, Some(part(a) as f64), Some(part(b) as f64));
        let metrics = crate::storm::measure::Metric::ALL.iter().filter_map(|metric| {
            let of = |results: &Results| results.latencies.get(metric.name()).cloned();
            metric_of(metric.name(), of(a).as_ref(), of(b).as_ref())
        });
        Self {
            differences: differences(a, b),
            latencies_us: metrics.collect(),
            rates: vec![
                rate("connects", |results| results.totals.connects),
                rate("resumes", |results| results.totals.resumes),
                rate("calls", |results| results.totals.calls),
                rate("events", |results| results.totals.events),
                rate("bytes_in", |results| results.totals.bytes_in),
                rate("bytes_out", |results| results.totals.bytes_out),
            ],
            counts: vec![
                whole("peak_connections", |results| results.peak_connections),
                whole("peak_sessions", |results| results.peak_sessions),
                whole("violations", |results| results.totals.violations),
                whole("errors", |results| results.totals.errors),
            ],
            verdicts: kinds(&a.verdicts, &b.verdicts),
            errors: kinds(&a.errors, &b.errors),
        }
    }

    /// Writes it as tables.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for difference in &self.differences {
            writeln!(out, "{DOUBTFUL}not alike{DOUBTFUL:#}: {}", on_a_line(difference))?;
        }
        writeln!(out, "{STRONG}{:<32} {:>14} {:>14} {:>9}{STRONG:#}", "", "A", "B", "B/A")?;
        for metric in &self.latencies_us {
            for pair in &metric.percentiles {
                line(out, &format!("{} {}", metric.name, pair.name), pair, |us| latency(us as u64), true)?;
            }
        }
        for pair in &self.rates {
            line(out, &format!("{}/s", pair.name), pair, |value| count(value.round() as u64), false)?;
        }
        for (title, pairs) in [("", &self.counts), ("verdict ", &self.verdicts), ("error ", &self.errors)] {
            for pair in pairs {
                line(out, &format!("{title}{}", on_a_line(&pair.name)), pair, number, false)?;
            }
        }
        Ok(())
    }
}

/// One line. Only latencies are coloured: of the others, more is neither better nor worse.
fn line(out: &mut dyn Write, name: &str, pair: &Pair, shown: impl Fn(f64) -> String, coloured: bool) -> io::Result<()> {
    let shown = |value: Option<f64>| value.map_or_else(|| "-".into(), &shown);
    let ratio = pair.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}×"));
    let style = match pair.ratio {
        Some(ratio) if coloured && ratio > 1.0 + SAME => BAD,
        Some(ratio) if coloured && ratio < 1.0 - SAME => GOOD,
        _ => DIM,
    };
    writeln!(out, "{name:<32} {:>14} {:>14} {style}{ratio:>9}{style:#}", shown(pair.a), shown(pair.b))
}

fn metric_of(name: &str, a: Option<&Latencies>, b: Option<&Latencies>) -> Option<Metric> {
    let percentiles = |latencies: Option<&Latencies>| latencies.map(|latencies| latencies.corrected.percentiles());
    let (a, b) = (percentiles(a), percentiles(b));
    let names = a.or(b)?.map(|(name, _)| name);
    let value = |of: Option<[(&str, u64); 5]>, index: usize| of.map(|percentiles| percentiles[index].1 as f64);
    let pairs = names.iter().enumerate().map(|(index, name)| Pair::new(*name, value(a, index), value(b, index)));
    Some(Metric { name: name.into(), percentiles: pairs.collect() })
}

type Kinds = std::collections::BTreeMap<String, u64>;

fn kinds(a: &Kinds, b: &Kinds) -> Vec<Pair> {
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let value = |of: &Kinds, name: &String| Some(of.get(name).copied().unwrap_or(0) as f64);
    names.into_iter().map(|name| Pair::new(name.clone(), value(a, name), value(b, name))).collect()
}

fn differences(a: &Results, b: &Results) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: &dyn ToString, b: &dyn ToString| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            found.push(format!("{what}: A has {a}, B has {b}"));
        }
    };
    differ("script", &a.script.name, &b.script.name);
    differ("seed", &a.seed, &b.seed);
    differ("sessions", &a.sessions, &b.sessions);
    differ("threads", &a.threads, &b.threads);
    differ("pacing", &a.pacing.name(), &b.pacing.name());
    differ("version of the storm", &a.tool.version, &b.tool.version);
    differ("cores", &a.environment.cores, &b.environment.cores);
    differ("kernel", &a.environment.kernel, &b.environment.kernel);
    differ("instruction set", &a.environment.arch, &b.environment.arch);
    if a.script.name == b.script.name && a.script.text != b.script.text {
        found.push("script: the same name, but another text".into());
    }
    for (name, run) in [("A", a), ("B", b)] {
        if run.saturation.saturated {
            found.push(format!("in {name} the storm was the bottleneck: its latencies say more of the storm than of the server"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::results::tests::results;

    fn plain(a: &Results, b: &Results) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        Comparison::of(a, b).write(&mut out).expect("in memory");
        String::from_utf8(out.into_inner()).expect("text")
    }

    #[test]
    fn equal_runs_differ_in_nothing() {
        let a = results();
        let comparison = Comparison::of(&a, &a);
        assert!(comparison.differences.is_empty());
        let ratios = comparison.latencies_us.iter().flat_map(|metric| &metric.percentiles).filter_map(|pair| pair.ratio);
        assert!(ratios.clone().count() > 10);
        assert!(ratios.into_iter().all(|ratio| (ratio - 1.0).abs() < 1e-9));
    }

    #[test]
    fn a_latency_twice_as_long_is_a_ratio_of_two() {
        let (a, mut b) = (results(), results());
        let call = b.latencies.get_mut("call").expect("measured");
        call.corrected.p99_us = 2 * a.latencies["call"].corrected.p99_us;
        let text = plain(&a, &b);
        let line = text.lines().find(|line| line.starts_with("call p99 ")).expect("a line");
        assert!(line.ends_with("2.00×"), "{line}");
    }

    #[test]
    fn what_only_one_run_has_is_shown_without_a_ratio() {
        let (a, mut b) = (results(), results());
        b.latencies.remove("call");
        b.verdicts.insert("resync".into(), 4);
        let text = plain(&a, &b);
        assert!(text.lines().any(|line| line.starts_with("call p50") && line.trim_end().ends_with('-')), "{text}");
        assert!(
            text.lines().any(|line| line.starts_with("verdict resync") && line.split_whitespace().nth(3) == Some("4")),
            "{text}"
        );
    }

    #[test]
    fn whatever_makes_two_runs_hard_to_compare_is_said() {
        let (a, mut b) = (results(), results());
        b.seed = 8;
        b.sessions = 9;
        b.script.text = "other".into();
        b.saturation.saturated = true;
        let text = plain(&a, &b);
        for said in
            ["seed: A has 7, B has 8", "sessions: A has 2000, B has 9", "another text", "in B the storm was the bottleneck"]
        {
            assert!(text.contains(said), "{said} in {text}");
        }
    }
}
