//! What a server must never do to a client that comes back, each with its name, and the transcript that shows it.

use std::collections::VecDeque;
use std::fmt;

/// Lines of a transcript. Reason: what went before a violation explains it, what went long before does not.
const TRANSCRIPT_LINES: usize = 40;
/// Bytes of one line; longer ones are cut. Reason: paddings of megabytes explain nothing.
const LINE_BYTES: usize = 240;

/// A forbidden outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Events are missing, and no `resync` said so.
    SilentGap,
    /// An event came twice.
    Duplicate,
    /// An event came after one that follows it.
    Reorder,
    /// An id named another event before.
    RestartedIds,
    /// An event of another call, or of another session.
    ForeignEvent,
    /// A call ran twice.
    DoubleExecution,
    /// The server says that a stream is complete, and its call's result never came.
    LostResult,
    /// A result that is not what the call asked for.
    WrongResult,
    /// A connected client waits, and nothing comes.
    Hang,
    /// A call had no answer when the run ended, though its client could come back.
    Unanswered,
    /// A cursor that the session never had was taken.
    BadCursorTaken,
    /// The client refused an event, and the oracle finds nothing wrong.
    ContinuityViolated,
}

impl Outcome {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SilentGap => "silent_gap",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::RestartedIds => "restarted_ids",
            Self::ForeignEvent => "foreign_event",
            Self::DoubleExecution => "double_execution",
            Self::LostResult => "lost_result",
            Self::WrongResult => "wrong_result",
            Self::Hang => "hang",
            Self::Unanswered => "unanswered",
            Self::BadCursorTaken => "bad_cursor_taken",
            Self::ContinuityViolated => "continuity_violated",
        }
    }
}

/// A forbidden outcome that happened.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// Which.
    pub(crate) outcome: Outcome,
    /// What was expected and what came.
    pub(crate) text: String,
    /// The stream's last lines, the offending one last.
    pub(crate) transcript: String,
}

/// The last lines of what went over the wire for one call. Bounded.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    lines: VecDeque<Box<str>>,
    dropped: u64,
}

impl Transcript {
    /// Adds a line. `at_ms`: since the run's start; `sign`: `>` for what we sent, `<` for what came, `*` for what happened.
    pub(crate) fn add(&mut self, at_ms: u64, sign: char, line: fmt::Arguments<'_>) {
        let mut text = format!("{:>9.3} {sign} {line}", at_ms as f64 / 1_000.0);
        if text.len() > LINE_BYTES {
            let cut = text.floor_char_boundary(LINE_BYTES);
            let rest = text.len() - cut;
            text.truncate(cut);
            text += &format!(" … {rest} bytes more");
        }
        if self.lines.len() == TRANSCRIPT_LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(text.into());
    }

    /// Forgets all of it.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.dropped = 0;
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dropped > 0 {
            writeln!(f, "          ({} lines before)", self.dropped)?;
        }
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", line.replace(['\n', '\r'], "⏎")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_keeps_its_last_lines_and_cuts_long_ones() {
        let mut transcript = Transcript::default();
        for number in 0..=TRANSCRIPT_LINES {
            transcript.add(1_500, '<', format_args!("event {number}"));
        }
        transcript.add(2_000, '<', format_args!("{}", "é".repeat(LINE_BYTES)));
        let text = transcript.to_string();
        assert!(text.starts_with("          (2 lines before)\n    1.500 < event 2\n"), "{text}");
        assert_eq!(text.lines().count(), TRANSCRIPT_LINES + 1);
        assert!(text.lines().last().is_some_and(|line| line.len() < LINE_BYTES + 40 && line.ends_with("bytes more")), "{text}");
    }
}
