//! Reports of a storm: what is shown under way, and what is left behind.
//!
//! Never measures, and never changes a number: all of them say what the results say.

mod compare;
mod hgrm;
mod html;
mod numbers;
pub(super) mod progress;
mod text;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::results::Results;
use compare::Comparison;

/// How a summary is written to stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people.
    #[default]
    Text,
    /// One JSON value.
    Json,
}

/// What is left of a run.
#[derive(Debug, Default, Args)]
pub(super) struct Outputs {
    /// Form of the summary on stdout.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// File for the results, which --compare and --from read.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for a report with plots: one page, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for a percentile distribution of each metric, as HdrHistogram's plotters read them.
    #[arg(long, value_name = "DIRECTORY")]
    hgrm: Option<PathBuf>,
}

impl Outputs {
    /// Makes sure that all of it can be written, before the storm: a typo must not cost a run. Files that are there keep what is in
    /// them until then.
    pub(super) fn prepare(&self) -> Result<(), String> {
        for path in self.json.iter().chain(&self.html) {
            File::options().create(true).append(true).open(path).map_err(|error| told(path, &error))?;
        }
        self.hgrm.iter().try_for_each(|path| fs::create_dir_all(path).map_err(|error| told(path, &error)))
    }

    /// Writes all that was asked for. The files come first, so that a closed stdout costs none of them.
    pub(super) fn write(&self, results: &Results) -> Result<(), String> {
        if let Some(path) = &self.json {
            fs::write(path, json(results)?).map_err(|error| told(path, &error))?;
        }
        if let Some(path) = &self.html {
            fs::write(path, html::render(results)?).map_err(|error| told(path, &error))?;
        }
        if let Some(path) = &self.hgrm {
            hgrm::write(path, results)?;
        }
        match self.format {
            Format::Text => to_stdout(|out| text::write(out, results)),
            Format::Json => {
                let text = json(results)?;
                to_stdout(|out| out.write_all(text.as_bytes()))
            }
        }
    }
}

/// Runs that are over, read again.
#[derive(Debug, Default, Args)]
pub(super) struct Reading {
    /// Compare the results of two runs, and run nothing.
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["from", "json", "html", "hgrm"])]
    compare: Vec<PathBuf>,
    /// Write the reports of a run that is over, and run nothing.
    #[arg(long, value_name = "RESULTS.json")]
    from: Option<PathBuf>,
}

impl Reading {
    /// Does what was asked for; none where a storm is to be run.
    pub(super) fn run(&self, outputs: &Outputs) -> Option<Result<(), String>> {
        match (&self.compare[..], &self.from) {
            ([a, b], _) => Some(compared(a, b, outputs.format)),
            (_, Some(path)) => Some(again(path, outputs)),
            _ => None,
        }
    }
}

fn compared(a: &Path, b: &Path, format: Format) -> Result<(), String> {
    let comparison = Comparison::of(&read(a)?, &read(b)?);
    match format {
        Format::Text => to_stdout(|out| comparison.write(out)),
        Format::Json => {
            let text = json(&comparison)?;
            to_stdout(|out| out.write_all(text.as_bytes()))
        }
    }
}

fn again(path: &Path, outputs: &Outputs) -> Result<(), String> {
    let results = read(path)?;
    outputs.prepare()?;
    outputs.write(&results)
}

fn read(path: &Path) -> Result<Results, String> {
    Results::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// Colours go to a terminal alone, and nowhere where `NO_COLOR` is set. A reader that has seen enough is no error.
fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}

fn told(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests;
