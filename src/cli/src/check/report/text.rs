//! The report on a terminal: the table, then each finding with its sentence or its row.
//!
//! Never sends a character of the server's to the terminal as it is, unless it is printable.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::results::{Results, Row};
use crate::check::cases::Case;
use crate::check::run::Outcome;
use crate::check::verdict::{Finding, Verdict};
use crate::shown::{on_a_line, printable};

const STRONG: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

const fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Pass => AnsiColor::Green.on_default(),
        Verdict::Unclear => AnsiColor::Yellow.on_default(),
        Verdict::ViolatesMcp => AnsiColor::Magenta.on_default().bold(),
        Verdict::BreaksContinuity => AnsiColor::Red.on_default().bold(),
        Verdict::Untested => DIM,
    }
}

/// Writes the report. Styles are written whatever `out` is: a stream of `anstream` drops them where they do not belong.
pub(super) fn write(out: &mut dyn Write, results: &Results) -> io::Result<()> {
    let tool = results.tool.as_deref().unwrap_or("none");
    writeln!(
        out,
        "{STRONG}{}{STRONG:#} at {}, MCP {}, by its tool {}",
        on_a_line(&results.server),
        on_a_line(&results.target),
        on_a_line(&results.revision),
        on_a_line(tool)
    )?;
    let width = results.cases.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let mut group = "";
    for row in &results.cases {
        if row.group != group {
            group = row.group;
            writeln!(out, "\n{STRONG}{group}{STRONG:#}")?;
        }
        line(out, row, width)?;
    }
    writeln!(out)?;
    let counts = Verdict::ALL.into_iter().filter(|verdict| results.count(*verdict) > 0);
    let counts: Vec<_> =
        counts.map(|verdict| format!("{}{} {verdict}{:#}", style(verdict), results.count(verdict), style(verdict))).collect();
    writeln!(out, "{}", counts.join(", "))
}

fn line(out: &mut dyn Write, row: &Row, width: usize) -> io::Result<()> {
    let style = style(row.verdict);
    writeln!(
        out,
        "  {style}{:<18}{style:#} {:<width$}  {DIM}{:>6.1} s{DIM:#}",
        row.verdict,
        row.name,
        row.took_ms as f64 / 1000.0
    )?;
    if let Some(why) = &row.untested {
        writeln!(out, "      {DIM}untested: {}{DIM:#}", on_a_line(why))?;
    }
    row.findings.iter().try_for_each(|finding| self::finding(out, finding))
}

fn finding(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    let cost = finding.cost.map(|cost| format!(" [{}]", cost.words())).unwrap_or_default();
    writeln!(out, "      {}{STRONG}{cost}{STRONG:#}", on_a_line(&finding.text))?;
    if let Some(boundary) = finding.boundary {
        writeln!(out, "      {DIM}boundary: {boundary}{DIM:#}")?;
    }
    if let Some(sentence) = finding.mcp {
        writeln!(out, "      {DIM}{}: \"{}\"{DIM:#}", sentence.section, sentence.text)?;
    }
    Ok(())
}

/// Writes one case with its transcript.
pub(super) fn explain(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let (case, verdict) = (outcome.case, outcome.verdict());
    writeln!(out, "{STRONG}{}{STRONG:#}: {}", case.name, case.expects)?;
    writeln!(out, "{DIM}boundary: {}{DIM:#}\n", case.boundary)?;
    for said in printable(&outcome.transcript).lines() {
        writeln!(out, "  {DIM}|{DIM:#} {said}")?;
    }
    let style = style(verdict);
    writeln!(out, "\n{style}{verdict}{style:#}")?;
    if let Some(why) = &outcome.untested {
        writeln!(out, "      {}", on_a_line(why))?;
    }
    outcome.findings.iter().try_for_each(|finding| self::finding(out, finding))
}

/// Writes the list of cases.
pub(super) fn list(out: &mut dyn Write, cases: &[&Case]) -> io::Result<()> {
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or_default();
    let mut group = "";
    for case in cases {
        if case.group != group {
            group = case.group;
            writeln!(out, "{STRONG}{group}{STRONG:#}")?;
        }
        writeln!(out, "  {:<width$}  {}", case.name, case.expects)?;
    }
    Ok(())
}
