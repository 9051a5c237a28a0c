//! A stream as the oracle keeps it: everything that was ever said on it, for ever, and what clients were told is lost.
//!
//! Never evicts, and knows no bytes: an event is its JSON-RPC message.

use std::borrow::Cow;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Check;

/// A JSON-RPC message as a client reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message<'a> {
    pub(crate) jsonrpc: &'a str,
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

/// A JSON-RPC error as a client reads it.
#[derive(Debug, Deserialize)]
pub(crate) struct RpcError<'a> {
    pub(crate) code: i64,
    #[serde(borrow)]
    pub(crate) message: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) data: Option<ErrorData<'a>>,
}

/// What this server's errors carry.
#[derive(Debug, Deserialize)]
pub(crate) struct ErrorData<'a> {
    #[serde(borrow)]
    pub(crate) code: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) action: Option<Cow<'a, str>>,
}

impl<'a> Message<'a> {
    /// Reads one.
    pub(crate) fn read(text: &'a str) -> Check<Self> {
        let message: Self = serde_json::from_str(text).map_err(|error| format!("no JSON-RPC message ({error}): {text}"))?;
        if message.jsonrpc != "2.0" {
            return Err(format!("no JSON-RPC 2.0: {text}"));
        }
        Ok(message)
    }

    /// Its id, as JSON.
    pub(crate) fn id(&self) -> Option<&'a str> {
        self.id.map(RawValue::get)
    }

    /// Whether it is the error that says that nobody knows a call's outcome.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        let Some(error) = self.error.and_then(|error| serde_json::from_str::<RpcError<'_>>(error.get()).ok()) else {
            return false;
        };
        let Some(data) = error.data else { return false };
        error.code == -32010 && data.code.as_deref() == Some("outcome_unknown") && data.action.as_deref() == Some("verify")
    }
}

/// What kind of thing was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A notification.
    Notification,
    /// A request to the client.
    Request,
    /// A result.
    Result,
    /// A handler's error.
    Error,
    /// `outcome_unknown`, said instead of a result that will not come.
    Unknown,
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) what: What,
    /// The message's id, as JSON; `None` for a notification, and for an unknown outcome of one of several calls.
    pub(crate) id: Option<Rc<str>>,
    /// A notification's or request's method.
    pub(crate) method: Option<Rc<str>>,
    /// Params, result or error.
    pub(crate) body: Rc<str>,
    /// When it was said.
    pub(crate) time: u64,
    /// A request: whether it needs no answer any more, and since which step.
    pub(crate) over: Option<u64>,
    /// Nobody has seen yet whether it was said: the log may have had no room.
    pub(crate) soft: bool,
}

impl Item {
    /// Whether this message is it, to the byte.
    pub(crate) fn fits(&self, message: &Message<'_>) -> bool {
        let body = match self.what {
            What::Unknown => {
                let same = self.id.as_deref().is_none_or(|id| message.id() == Some(id));
                return same && message.method.is_none() && message.result.is_none() && message.is_outcome_unknown();
            }
            What::Notification | What::Request => message.params.filter(|_| message.result.is_none() && message.error.is_none()),
            What::Result => message.result.filter(|_| message.params.is_none() && message.error.is_none()),
            What::Error => message.error.filter(|_| message.params.is_none() && message.result.is_none()),
        };
        message.id() == self.id.as_deref()
            && message.method.as_deref() == self.method.as_deref()
            && body.map(RawValue::get) == Some(&*self.body)
    }

    /// Whether it ends a call.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.what, What::Result | What::Error | What::Unknown)
    }
}

/// A call that a stream answers.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The kernel's name for it.
    pub(crate) call: u64,
    /// The client's id, as JSON; `None` where only the kernel knows which of a batch it is.
    pub(crate) id: Option<Rc<str>>,
    /// What became of it.
    pub(crate) state: State,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Answered,
    Cancelled,
}

/// A stream.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) items: Vec<Item>,
    /// Items that are soft.
    soft: usize,
    /// The calls that it answers.
    pub(crate) answers: Vec<Answer>,
    /// The step in which nothing more could be said.
    pub(crate) finished: Option<u64>,
    /// GETs that were served it, and times that its connections were let go.
    pub(crate) epoch: u64,
    /// The step of the last of either.
    pub(crate) taken: Option<u64>,
    /// The step in which its connections were let go last.
    pub(crate) hung_up: Option<u64>,
    /// The step of the last item, and how many there were before it.
    before: (u64, u64),
    /// A bit for each position that a client was told is lost.
    lost: Vec<u64>,
    /// The last position that went into a socket whole, or that a client has shown to have.
    pub(crate) written: u64,
    /// The same, as far as whole sends went: of a part of one it may not be known how far it went, where its events are gone.
    pub(crate) surely_written: u64,
}

impl Line {
    /// Something is said.
    pub(crate) fn say(&mut self, item: Item, step: u64) {
        if self.before.0 != step {
            self.before = (step, self.items.len() as u64);
        }
        self.soft += usize::from(item.soft);
        self.items.push(item);
    }

    /// How many events there are, at least and at most; with `step`, there may be as few as before that step.
    pub(crate) fn issued(&self, step: Option<u64>) -> (u64, u64) {
        let all = self.items.len() as u64;
        let fewest = match step {
            Some(step) if self.before.0 == step => self.before.1.min(all),
            _ => all,
        };
        (fewest.saturating_sub(self.soft as u64), all)
    }

    /// Whether it is known of every item whether it was said.
    pub(crate) fn certain(&self) -> bool {
        self.soft == 0
    }

    /// The item at a position, where that is certain.
    pub(crate) fn at(&self, position: u64) -> Option<&Item> {
        let index = position.checked_sub(1)? as usize;
        let item = self.items.get(index)?;
        (self.soft == 0 || self.items[..=index].iter().all(|item| !item.soft)).then_some(item)
    }

    /// How many of the events after `from` up to `to` may be requests that are over: behind an item of which it is not known whether it
    /// was said, an event may stand at several positions.
    pub(crate) fn most_over(&self, from: u64, to: u64) -> u64 {
        let (mut soft_before, mut most) = (0, 0);
        for (item, latest) in self.items.iter().zip(1..) {
            let may_stand = latest > from && latest - soft_before <= to;
            most += u64::from(may_stand && item.over.is_some());
            soft_before += u64::from(item.soft);
        }
        most
    }

    /// Finds the item that this message at this position is, and learns from it which soft items were never said.
    pub(crate) fn find(&mut self, position: u64, message: &Message<'_>) -> Option<&Item> {
        let first = position.checked_sub(1)? as usize;
        for index in first..=(first + self.soft).min(self.items.len().checked_sub(1)?) {
            let soft_before = if self.soft == 0 { 0 } else { self.items[..index].iter().filter(|item| item.soft).count() };
            let absent = index - first;
            if absent > soft_before || !self.items[index].fits(message) {
                continue;
            }
            let mut index = index;
            if absent == soft_before {
                let mut at = 0;
                self.items.retain(|item| {
                    at += 1;
                    at > index || !item.soft
                });
                self.soft -= soft_before;
                index -= absent;
            } else if absent == 0 {
                self.items[..index].iter_mut().for_each(|item| item.soft = false);
                self.soft -= soft_before;
            }
            if std::mem::take(&mut self.items[index].soft) {
                self.soft -= 1;
            }
            return Some(&self.items[index]);
        }
        None
    }

    /// A client was told that these positions are lost.
    pub(crate) fn lose(&mut self, from: u64, to: u64) {
        let words = (to / 64 + 1) as usize;
        if self.lost.len() < words {
            self.lost.resize(words, 0);
        }
        for position in from..=to {
            self.lost[(position / 64) as usize] |= 1 << (position % 64);
        }
    }

    /// Whether a client was told that this position is lost.
    pub(crate) fn is_lost(&self, position: u64) -> bool {
        self.lost.get((position / 64) as usize).is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// A call is over.
    pub(crate) fn settle(&mut self, call: u64, state: State, step: u64) {
        if let Some(answer) = self.answers.iter_mut().find(|answer| answer.call == call) {
            answer.state = state;
        }
        if self.answers.iter().all(|answer| answer.state != State::Pending) {
            self.finished.get_or_insert(step);
        }
    }

    /// Whether a call of it was cancelled, with this id.
    pub(crate) fn cancelled(&self, id: &str) -> bool {
        self.answers.iter().any(|answer| answer.state == State::Cancelled && answer.id.as_deref().is_none_or(|one| one == id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: u64, soft: bool) -> Item {
        let body = format!(r#"{{"n":{n}}}"#).into();
        Item { what: What::Notification, id: None, method: Some("m".into()), body, time: 0, over: None, soft }
    }

    fn find(line: &mut Line, position: u64, n: u64) -> bool {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"n":{n}}}}}"#);
        line.find(position, &Message::read(&text).unwrap()).is_some()
    }

    #[test]
    fn what_may_not_have_been_said_is_learnt_from_what_follows() {
        let soft = [false, true, false, true, false];
        let fresh = || {
            let mut line = Line::default();
            for (n, soft) in soft.into_iter().enumerate() {
                line.say(item(n as u64, soft), 1);
            }
            line
        };
        let mut absent = fresh();
        assert_eq!(absent.issued(None), (3, 5));
        assert!(find(&mut absent, 2, 2) && !find(&mut absent, 2, 1));
        assert_eq!(absent.issued(None), (3, 4));
        assert!(find(&mut absent, 4, 4) && absent.certain());
        let mut present = fresh();
        assert!(find(&mut present, 3, 2) && find(&mut present, 2, 1) && !find(&mut present, 2, 2));
        assert!(find(&mut present, 4, 4));
        assert_eq!(present.issued(None), (4, 4));
        assert!(!find(&mut fresh(), 2, 3), "the item between them is certain");
    }
}
