//! What was said on the wire in one case, for `--explain` and the reports.
//!
//! Never keeps a field that the user gave (it may be a secret), and never more than its bound.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of a transcript that are kept, the last ones. Reason: what broke a promise is at the end.
const KEPT: usize = 64 << 10;
/// Bytes of one line. Reason: a payload says nothing.
const LINE: usize = 400;

/// A case's transcript; clones write into the same.
#[derive(Clone, Debug)]
pub(crate) struct Transcript(Rc<RefCell<Lines>>);

#[derive(Debug)]
struct Lines {
    began: Instant,
    kept: VecDeque<String>,
    bytes: usize,
    left_out: usize,
}

impl Default for Transcript {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(Lines { began: Instant::now(), kept: VecDeque::new(), bytes: 0, left_out: 0 })))
    }
}

impl Transcript {
    /// Forgets all of it: the next case begins.
    pub(crate) fn restart(&self) {
        *self.0.borrow_mut() = Lines { began: Instant::now(), kept: VecDeque::new(), bytes: 0, left_out: 0 };
    }

    /// Notes each line of a text, as said on this connection in this direction.
    pub(crate) fn note(&self, line: usize, direction: char, text: &str) {
        let mut lines = self.0.borrow_mut();
        let at = lines.began.elapsed().as_secs_f64();
        for said in text.lines() {
            let shown: String = said.chars().take(LINE).collect();
            let more = if shown.len() < said.len() { " …" } else { "" };
            lines.push(format!("{at:7.3} #{line} {direction} {shown}{more}"));
        }
    }

    /// The text, with a word about what was left out.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.borrow();
        let mut text = String::with_capacity(lines.bytes + 64);
        if lines.left_out > 0 {
            text.push_str(&format!("({} lines before)\n", lines.left_out));
        }
        for line in &lines.kept {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

impl Lines {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.kept.push_back(line);
        while self.bytes > KEPT {
            let Some(first) = self.kept.pop_front() else { return };
            self.bytes -= first.len();
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_what_was_left_out_is_counted() {
        let transcript = Transcript::default();
        for number in 0..2_000 {
            transcript.note(1, '<', &format!("{number} {}", "x".repeat(300)));
        }
        let text = transcript.text();
        assert!(text.len() < KEPT + 2_000 && text.contains("lines before)") && text.contains("#1 < 1999 "), "{}", &text[..80]);
        transcript.note(2, '>', &"y".repeat(LINE + 1));
        assert!(transcript.text().trim_end().ends_with('…'));
        transcript.restart();
        assert_eq!(transcript.text(), "");
    }
}
