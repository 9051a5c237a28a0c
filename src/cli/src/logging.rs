//! The log: lines on standard error, as text for people or as JSON for machines.
//!
//! Never decides what is logged where: `RUST_LOG` does.

use std::error::Error;
use std::io::{self, IsTerminal, Write, stderr};

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
    let log = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    match format {
        LogFormat::Text => {
            let colours = stderr().is_terminal();
            log.with_ansi(colours).with_writer(move || Plain { to: stderr(), colours }).try_init()
        }
        LogFormat::Json => log.with_writer(stderr).json().flatten_event(true).try_init(),
    }
    .map_err(|error| -> Box<dyn Error> { error })
}

/// Text that steers nothing: what a client, a tool or a child process says could else begin a line that looks like ours, or move the
/// reader's cursor.
struct Plain<W> {
    to: W,
    /// Colours pass, since the formatter's own are among them.
    colours: bool,
}

/// Whether an escape sequence that begins here only sets a colour (ECMA-48, 8.3.117, SGR).
fn is_colour(rest: &str) -> bool {
    let of_parameters = |character: char| character.is_ascii_digit() || character == ';';
    rest.strip_prefix("\u{1b}[").is_some_and(|rest| rest.trim_start_matches(of_parameters).starts_with('m'))
}

impl<W: Write> Write for Plain<W> {
    /// Takes one event, whole, with the line feed that ends it: the formatter writes it at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event));
        let mut line = String::with_capacity(event.len() + 1);
        for (at, character) in text.char_indices() {
            if character.is_control() && !(self.colours && is_colour(&text[at..])) {
                line.extend(character.escape_default());
            } else {
                line.push(character);
            }
        }
        line.push('\n');
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("a lock").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_others_say_begins_no_line_of_its_own() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || Plain { to: writer.clone(), colours: false }).finish();
        let said = "x\r\n2026-01-01T00:00:00Z  INFO rejoin: all is well\n\u{1b}[2J\u{1b}[8mhidden";
        tracing::subscriber::with_default(log, || {
            tracing::warn!(%said, "{said}");
            tracing::warn!("another");
        });
        let written = String::from_utf8(kept.0.lock().expect("a lock").clone()).expect("text");
        assert_eq!(written.lines().count(), 2, "{written}");
        assert!(written.contains(r"x\r\n2026") && !written.contains(['\r', '\u{1b}']), "{written}");
    }

    #[test]
    fn only_colours_are_let_through() {
        let kept = Kept::default();
        Plain { to: kept.clone(), colours: true }
            .write_all(b"\x1b[2m12:00\x1b[0m \x1b[1;31mred\x1b[0m \x1b[2Jcleared \x1b]0;title\x07 \xc2\x9b\n")
            .expect("written");
        let written = String::from_utf8(kept.0.lock().expect("a lock").clone()).expect("text");
        let expected = "\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;31mred\u{1b}[0m \\u{1b}[2Jcleared \\u{1b}]0;title\\u{7} \\u{9b}\n";
        assert_eq!(written, expected);
    }
}
