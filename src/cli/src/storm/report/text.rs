//! The summary on a terminal: what was broken first, then the numbers.
//!
//! Never sends a character of a server or a script to the terminal as it is, unless it is printable.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::numbers::{bytes, bytes_rate, count, latency, moment, number, on_a_line, printable, rate};
use crate::storm::results::{Distribution, Results};

pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(super) const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();
pub(super) const STRONG: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
/// Last lines of a transcript in the summary; the whole of it is in the other reports.
const TRANSCRIPT_LINES: usize = 12;
/// Violations in the summary.
const VIOLATIONS_SHOWN: usize = 3;

/// Writes the summary. Styles are written whatever `out` is: a stream of `anstream` drops them where they do not belong.
pub(super) fn write(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    violations(out, results)?;
    saturation(out, results)?;
    head(out, results)?;
    minimums(out, results)?;
    latencies(out, results)?;
    totals(out, results)?;
    kinds(out, "verdicts", results.verdicts.iter())?;
    kinds(out, "errors", results.errors.iter())?;
    if results.passed { writeln!(out, "{GOOD}passed{GOOD:#}") } else { writeln!(out, "{BAD}failed{BAD:#}") }
}

fn violations(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    if results.totals.violations == 0 {
        return Ok(());
    }
    writeln!(out, "{BAD}{} violations{BAD:#}", count(results.totals.violations))?;
    for (name, times) in &results.violations_by_name {
        writeln!(out, "  {} {}", count(*times), on_a_line(name))?;
    }
    for violation in results.violations.iter().take(VIOLATIONS_SHOWN) {
        let (at, name, text) = (moment(violation.at_ms), on_a_line(&violation.name), on_a_line(&violation.text));
        writeln!(out, "\n{BAD}{name}{BAD:#} at {at}: {text}")?;
        let transcript = printable(&violation.transcript);
        // What broke the promise is the last line.
        let before = transcript.lines().count().saturating_sub(TRANSCRIPT_LINES);
        if before > 0 {
            writeln!(out, "  {DIM}| {before} lines before{DIM:#}")?;
        }
        for line in transcript.lines().skip(before) {
            writeln!(out, "  {DIM}|{DIM:#} {line}")?;
        }
    }
    writeln!(out)
}

fn saturation(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    for reason in &results.saturation.reasons {
        writeln!(out, "{DOUBTFUL}the storm was the bottleneck{DOUBTFUL:#}: {}", on_a_line(reason))?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    let Results { threads, seed, .. } = results;
    writeln!(
        out,
        "{STRONG}{}{STRONG:#} against {}: {} sessions, {}, {threads} threads, {}, seed {seed}",
        on_a_line(&results.script.name),
        on_a_line(&results.target),
        count(results.sessions),
        results.pacing.name(),
        moment(results.duration_ms),
    )
}

fn minimums(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    for minimum in &results.minimums {
        let (style, word) = if minimum.met() { (GOOD, "reached") } else { (BAD, "missed") };
        let (name, unit) = (on_a_line(&minimum.name), on_a_line(&minimum.unit));
        let (reached, wanted) = (number(minimum.reached), number(minimum.wanted));
        writeln!(out, "{style}{word}{style:#} {name}: {reached} of {wanted} {unit}")?;
    }
    Ok(())
}

fn latencies(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    if results.latencies.is_empty() {
        return Ok(());
    }
    write!(out, "\n{STRONG}{:<24} {:>12}", "", "count")?;
    for name in ["p50", "p90", "p99", "p99.9", "max"] {
        write!(out, " {name:>9}")?;
    }
    writeln!(out, "{STRONG:#}")?;
    for (name, latencies) in results.latencies() {
        row(out, name, &latencies.corrected)?;
        if let Some(measured) = &latencies.as_measured {
            write!(out, "{DIM}")?;
            row(out, "  as measured", measured)?;
            write!(out, "{DIM:#}")?;
        }
        if latencies.clamped > 0 {
            writeln!(
                out,
                "  {DOUBTFUL}{} of them took an hour or more and count as an hour{DOUBTFUL:#}",
                count(latencies.clamped)
            )?;
        }
    }
    Ok(())
}

fn row(out: &mut dyn Write, name: &str, distribution: &Distribution) -> io::Result<()> {
    write!(out, "{name:<24} {:>12}", count(distribution.count))?;
    for (_, us) in distribution.percentiles() {
        write!(out, " {:>9}", latency(us))?;
    }
    writeln!(out)
}

fn totals(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    let series = &results.series;
    writeln!(out, "\n{STRONG}{:<24} {:>12} {:>12} {:>12}{STRONG:#}", "", "total", "mean", "peak")?;
    for (name, total, column) in results.counted() {
        let (mean, peak) = (rate(total as f64 / results.seconds()), rate(series.peak_rate(column)));
        writeln!(out, "{name:<24} {:>12} {mean:>12} {peak:>12}", count(total))?;
    }
    for (name, total, column) in results.moved() {
        let (mean, peak) = (total as f64 / results.seconds(), series.peak_rate(column));
        writeln!(out, "{name:<24} {:>12} {:>12} {:>12}", bytes(total), bytes_rate(mean), bytes_rate(peak))?;
    }
    for (name, most) in results.peaks() {
        writeln!(out, "{name:<24} {:>12} {:>12} {:>12}", "", "", count(most))?;
    }
    Ok(())
}

fn kinds<'a>(out: &mut dyn Write, title: &str, kinds: impl Iterator<Item = (&'a String, &'a u64)>) -> io::Result<()> {
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
    let all: Vec<_> = kinds.into_iter().map(|(kind, times)| format!("{} {}", on_a_line(kind), count(*times))).collect();
    if all.is_empty() { Ok(()) } else { writeln!(out, "{title:<24} {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::results::tests::{measured, results, run};

    fn plain(results: &Results) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        write(&mut out, results).expect("in memory");
        String::from_utf8(out.into_inner()).expect("text")
    }

    #[test]
    fn the_summary_has_every_metric_in_columns() {
        let text = plain(&results());
        let head = text.lines().find(|line| line.contains("p99.9")).expect("a head");
        for metric in ["time_to_resume", "call", "connect"] {
            let line = text.lines().find(|line| line.starts_with(metric)).expect("a line");
            assert_eq!(line.chars().count(), head.chars().count(), "{line}");
        }
        assert!(
            text.contains("replay 180, tail 20") && text.contains("reset 2") && text.trim_end().ends_with("passed"),
            "{text}"
        );
    }

    #[test]
    fn violations_come_first_and_fail_the_run() {
        let text = plain(&Results::new(run(), &measured(true)));
        assert!(text.starts_with("2 violations\n  2 gap\n"), "{text}");
        assert!(text.contains("| GET /mcp") && text.trim_end().ends_with("failed"));
    }

    #[test]
    fn a_long_transcript_is_shown_from_its_end_where_the_broken_promise_is() {
        let mut results = Results::new(run(), &measured(true));
        results.violations[0].transcript = (1..=TRANSCRIPT_LINES + 3).map(|line| format!("line {line}\n")).collect();
        let text = plain(&results);
        assert!(text.contains("| 3 lines before") && text.contains(&format!("line {}\n", TRANSCRIPT_LINES + 3)), "{text}");
        assert!(!text.contains("line 3\n"), "{text}");
    }

    #[test]
    fn a_hostile_name_does_not_steer_the_terminal() {
        let mut results = results();
        results.script.name = "\x1b]0;owned\x07\nfaked line".into();
        results.minimums[0].name = "\x1b[2J".into();
        results.verdicts.insert("\u{9b}31m".into(), 1);
        let mut out = Vec::new();
        write(&mut out, &results).expect("in memory");
        let text = String::from_utf8(out).expect("text");
        assert!(!text.contains("\x1b]") && !text.contains("\x1b[2J") && !text.contains('\u{9b}') && !text.contains("\nfaked"));
    }
}
