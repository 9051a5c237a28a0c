//! Reports of a check: for people, for programs, for CI, and as a page.
//!
//! Never judges: all of them say what the results say.

mod html;
mod junit;
pub(super) mod results;
mod text;

use std::io::{self, Write};

use clap::ValueEnum;

use super::cases::Case;
use super::run::Ran;
use results::Results;

/// Form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    #[default]
    Text,
    /// One JSON value.
    Json,
    /// XML as CI systems read test results.
    Junit,
    /// One page, which needs nothing else.
    Html,
}

/// Writes the report to stdout.
pub(super) fn write(format: Format, results: &Results) -> Result<(), String> {
    match format {
        Format::Text => to_stdout(|out| text::write(out, results)),
        Format::Json => {
            let text = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
            to_stdout(|out| writeln!(out, "{text}"))
        }
        Format::Junit => to_stdout(|out| writeln!(out, "{}", junit::render(results))),
        Format::Html => to_stdout(|out| writeln!(out, "{}", html::render(results))),
    }
}

/// Writes what was said on the wire in a case, and what became of it.
pub(super) fn explain(ran: &mut Ran, name: &str) -> Result<(), String> {
    let Some(outcome) = ran.outcomes.iter().find(|outcome| outcome.case.name == name) else {
        return Err(format!("no case {name:?}"));
    };
    to_stdout(|out| text::explain(out, outcome))
}

/// Writes the list of cases.
pub(super) fn list(cases: &[&Case]) -> Result<(), String> {
    to_stdout(|out| text::list(out, cases))
}

/// Colours go to a terminal alone, and nowhere where `NO_COLOR` is set. A reader that has seen enough is no error.
fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}

/// What a case found, on a line.
fn words(row: &results::Row) -> String {
    let said = row.findings.iter().map(|finding| match finding.cost {
        Some(cost) => format!("{} [{}]", finding.text, cost.words()),
        None => finding.text.clone(),
    });
    said.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
