//! What a stream brought beside what it must bring.
//!
//! Never looks at a byte: it compares what messages are known by.

use std::time::{Duration, Instant};

use super::bench::Bench;
use super::sentences;
use super::session::{Call, ERROR, Got, Mark, RESULT, Session};
use super::stream::{Event, Step, Stream};
use super::verdict::Cost;
use super::wire::{Reply, Trouble};

/// Where the boundary page speaks of replay.
pub(crate) const REPLAY: &str = "GET row 13, Replay";
/// Messages of a call that any server can hold.
const FEW: usize = 20;
/// How long a stream that should not be there is listened to.
const LISTEN: Duration = Duration::from_millis(700);
/// Events of such a stream that are read.
const HEARD: usize = 50;

/// What a stream's messages are beside those expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Came again.
    pub(crate) repeated: Vec<String>,
    /// Never came.
    pub(crate) missing: Vec<String>,
    /// Came, and belong to nothing that was asked.
    pub(crate) surplus: Vec<String>,
    /// All came, in another order.
    pub(crate) disordered: bool,
}

/// Compares what came after `had` with the rest of what is expected.
pub(crate) fn difference(expected: &[String], had: &[String], got: &[String]) -> Difference {
    let want = expected.get(had.len()..).unwrap_or_default();
    let mut difference = Difference::default();
    for (at, mark) in got.iter().enumerate() {
        if had.contains(mark) || got[..at].contains(mark) {
            difference.repeated.push(mark.clone());
        } else if !want.contains(mark) {
            difference.surplus.push(mark.clone());
        }
    }
    difference.missing = want.iter().filter(|mark| !got.contains(mark)).cloned().collect();
    let first_times: Vec<_> = got
        .iter()
        .enumerate()
        .filter(|(at, mark)| want.contains(mark) && !got[..*at].contains(mark))
        .map(|(_, mark)| mark)
        .collect();
    difference.disordered = first_times != want.iter().filter(|mark| got.contains(mark)).collect::<Vec<_>>();
    difference
}

impl Bench {
    /// Judges what followed the cursor after which `had` had come. Whether nothing was wrong.
    pub(crate) fn judge(&self, what: &str, call: &Call, had: &[String], got: &Got) -> bool {
        let marks = call.marks(&got.events);
        let mut good = self.judge_foreign(what, call, &got.events);
        let told = got.events.iter().any(Event::is_resync);
        let mut difference = difference(&call.expected, had, &marks);
        // An error in the answer's place is an answer.
        if marks.iter().any(|mark| mark == ERROR) && difference.missing.iter().any(|mark| mark == RESULT) {
            difference.missing.retain(|mark| mark != RESULT);
            difference.surplus.retain(|mark| mark != ERROR);
            self.unclear(REPLAY, format!("{what}: the call was answered with an error instead of its result"));
        }
        if !difference.repeated.is_empty() {
            good = false;
            self.breaks(Cost::Duplicate, REPLAY, format!("{what}: came again: {}", list(&difference.repeated)));
        }
        if !difference.surplus.is_empty() {
            good = false;
            self.breaks(Cost::Duplicate, REPLAY, format!("{what}: came unexpected: {}", list(&difference.surplus)));
        }
        let (answer, progress): (Vec<_>, Vec<_>) = difference.missing.iter().cloned().partition(|mark| mark == RESULT);
        if !progress.is_empty() && !told {
            good = false;
            self.breaks(
                Cost::Gap,
                REPLAY,
                format!("{what}: never came: {}, and nothing said so; the stream {}", list(&progress), got.ending.words()),
            );
        }
        if !progress.is_empty() && told && call.expected.len() < FEW {
            self.unclear(
                REPLAY,
                format!("{what}: {} was lost and `resync` said so; of so few events none need have been", list(&progress)),
            );
        }
        if !answer.is_empty() {
            good = false;
            let text = format!("{what}: the call's answer never came; the stream {}", got.ending.words());
            self.breaks(Cost::Hang, REPLAY, text);
        }
        if difference.disordered {
            good = false;
            self.breaks(Cost::Gap, REPLAY, format!("{what}: came out of order: {}", list(&marks)));
        }
        good
    }

    /// Judges that no message of another call came.
    pub(crate) fn judge_foreign(&self, what: &str, call: &Call, events: &[Event]) -> bool {
        let foreign = events.iter().find_map(|event| match call.mark(event) {
            Mark::Foreign(words) => Some(words),
            Mark::Own(_) | Mark::Other => None,
        });
        let Some(words) = foreign else { return true };
        self.breaks(
            Cost::Leak,
            "Replay: that stream's events only; POST: answers are routed by call",
            format!("{what}: brought {words}"),
        );
        false
    }

    /// Resumes a call and judges what comes. `None` where there was no stream, which is judged as well.
    pub(crate) fn resume_and_judge(
        &self,
        what: &str,
        session: &Session,
        cursor: &str,
        call: &Call,
        had: &[String],
    ) -> Result<Option<Got>, Trouble> {
        let reply = self.resume(session, cursor)?;
        let got = self.judge_reply(what, reply, call, had)?;
        if got.as_ref().is_some_and(|got| got.events.iter().any(|event| matches!(call.mark(event), Mark::Foreign(_)))) {
            self.violates(&sentences::OTHER_STREAM, format!("{what}: another stream's message was replayed"));
        }
        Ok(got)
    }

    /// The same of an answer that came.
    pub(crate) fn judge_reply(&self, what: &str, reply: Reply, call: &Call, had: &[String]) -> Result<Option<Got>, Trouble> {
        match self.read(reply, call)? {
            Ok(got) => {
                self.judge(what, call, had, &got);
                Ok(Some(got))
            }
            Err(reply) => {
                let cost = if (200..300).contains(&reply.status()) { Cost::Gap } else { Cost::Hang };
                self.breaks(cost, REPLAY, format!("{what}: was answered {}, and events were due", reply.words()));
                Ok(None)
            }
        }
    }

    /// Judges an answer that must be a refusal with one of these statuses. Whether it was a refusal at all.
    pub(crate) fn must_refuse(&self, what: &str, reply: Reply, statuses: &[u16], row: &'static str) -> Result<bool, Trouble> {
        self.refused(what, reply, statuses, row, Cost::Duplicate)
    }

    /// The same of a request for what is another's: a message on a stream is a leak.
    pub(crate) fn must_keep(&self, what: &str, reply: Reply, statuses: &[u16], row: &'static str) -> Result<bool, Trouble> {
        self.refused(what, reply, statuses, row, Cost::Leak)
    }

    /// `heard` is what messages on a stream cost.
    fn refused(&self, what: &str, reply: Reply, statuses: &[u16], row: &'static str, heard: Cost) -> Result<bool, Trouble> {
        let status = reply.status();
        if statuses.contains(&status) {
            return Ok(true);
        }
        let wanted = statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" or ");
        match reply {
            Reply::Stream(stream) => {
                let (messages, words) = listen(*stream)?;
                let cost = if messages == 0 { Cost::Hang } else { heard };
                self.breaks(cost, row, format!("{what}: was answered 200 and {words}, in place of {wanted}"));
                Ok(false)
            }
            whole if (200..400).contains(&status) => {
                self.breaks(Cost::Gap, row, format!("{what}: was answered {}, in place of {wanted}", whole.words()));
                Ok(false)
            }
            whole => {
                self.unclear(row, format!("{what}: was answered {}; {wanted} tells a client what to do", whole.words()));
                Ok(true)
            }
        }
    }
}

/// How many messages are on a stream that should not be there, and what is, in words.
fn listen(mut stream: Stream) -> Result<(usize, String), Trouble> {
    let until = Instant::now() + LISTEN;
    let (mut events, mut messages, mut ending) = (0, 0, "stayed open");
    while events < HEARD {
        match stream.next(until)? {
            Step::Event(event) => {
                events += 1;
                messages += usize::from(event.message().is_some());
            }
            Step::Over(how) => {
                ending = how.words();
                break;
            }
        }
    }
    let words = match messages {
        0 => format!("a stream with nothing on it, which {ending}"),
        1 => format!("a stream with a message on it, which {ending}"),
        count => format!("a stream with {count} messages on it, which {ending}"),
    };
    Ok((messages, words))
}

/// Names in a finding, at most so many.
const NAMED: usize = 8;

fn list(marks: &[String]) -> String {
    let mut text = marks.iter().take(NAMED).map(|mark| mark.chars().take(60).collect()).collect::<Vec<String>>().join(", ");
    if marks.len() > NAMED {
        text.push_str(&format!(" and {} more", marks.len() - NAMED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_continues_exactly_has_no_difference() {
        let expected = marks("1 2 3 result");
        assert_eq!(difference(&expected, &marks("1"), &marks("2 3 result")), Difference::default());
        assert_eq!(difference(&expected, &expected, &[]), Difference::default());
    }

    #[test]
    fn each_way_of_not_continuing_has_its_name() {
        let expected = marks("1 2 3 result");
        let of = |had: &str, got: &str| difference(&expected, &marks(had), &marks(got));
        assert_eq!(of("1", "1 2 3 result").repeated, marks("1"));
        assert_eq!(of("1", "2 2 3 result").repeated, marks("2"));
        assert_eq!(of("1", "3 result").missing, marks("2"));
        assert_eq!(of("1 2", "").missing, marks("3 result"));
        assert_eq!(of("1", "2 3 result 9").surplus, marks("9"));
        let disordered = of("", "1 3 2 result");
        assert!(disordered.disordered && disordered.missing.is_empty() && disordered.repeated.is_empty());
    }
}
