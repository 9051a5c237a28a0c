//! The log: lines on standard error, as text for people or as JSON for machines.
//!
//! Never decides what is logged where: `RUST_LOG` does.

use std::error::Error;
use std::io::{IsTerminal, stderr};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people; in colour on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// Begins the log. What `RUST_LOG` says must be right: a filter that is silently another one hides what it was set to show.
pub(crate) fn start(format: LogFormat) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let filter = filter.from_env().map_err(|error| format!("environment RUST_LOG: {error}"))?;
    // A log that nobody reads any more is lost, and nothing else: told on standard error, that would be a panic of whoever logs.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    }
    .map_err(|error| -> Box<dyn Error> { error })
}
