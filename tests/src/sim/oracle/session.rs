//! A session as the oracle keeps it: its lives, their streams, what is in flight, and what its client asked for.
//!
//! Never ends one by itself: it says whether an end that it is told of was due.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use rejoin_proto::ids::SessionId;
use rejoin_proto::refusal::Ended;

use super::line::Line;

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) text: Rc<str>,
    pub(crate) principal: Option<&'static str>,
    /// When it began.
    pub(crate) began: u64,
    /// The step in which its `initialize` was answered with success.
    pub(crate) published: Option<u64>,
    /// The negotiated revision.
    pub(crate) revision: &'static str,
    /// Whether its handler was told `notifications/initialized`.
    pub(crate) confirmed: bool,
    /// The step in which it ended, and why.
    pub(crate) ended: Option<(u64, Ended)>,
    /// Its lives, the present one last.
    pub(crate) lives: Vec<Life>,
    /// Calls in flight, by the kernel's name.
    pub(crate) flights: BTreeMap<u64, Flight>,
    /// Requests to its client without an answer.
    pub(crate) asks: BTreeMap<u64, Asked>,
    /// Ids seen: by which body, and on which stream of which life.
    seen: HashMap<Rc<str>, Seen>,
    /// Its client reuses ids, since this step.
    pub(crate) marked: Option<u64>,
    /// Resources that its client subscribed to.
    pub(crate) subscriptions: Vec<Rc<str>>,
    /// The `list_changed` notifications that its server may send.
    pub(crate) list_changed: Vec<&'static str>,
    /// Ids that a client asked to cancel.
    pub(crate) cancels: HashSet<Rc<str>>,
    /// A client asked for its end, and the step of an embedder's order.
    pub(crate) delete_asked: bool,
    pub(crate) close_ordered: Option<u64>,
    /// The step of an embedder's order to rotate.
    pub(crate) rotate_ordered: Option<u64>,
    /// It was certainly in use at this time, and may have been at that one.
    pub(crate) used: u64,
    pub(crate) maybe_used: u64,
    /// Connections that are certainly on its streams, and those that may be.
    pub(crate) attached: u32,
    pub(crate) maybe_attached: u32,
}

/// One life of a session.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Its streams by number; the first is the standalone one.
    pub(crate) lines: Vec<Line>,
    /// Finished streams, oldest first.
    pub(crate) finished: Vec<u32>,
    /// The step in which the next life began.
    pub(crate) over: Option<u64>,
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// Its number in the book.
    pub(crate) marker: usize,
    pub(crate) stream: u32,
    pub(crate) since: u64,
}

/// A request to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) stream: u32,
    pub(crate) since: u64,
}

#[derive(Debug)]
struct Seen {
    body: u64,
    place: (usize, u32),
}

/// How a request stands to what its session has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its id is new, or ids say nothing here.
    New,
    /// The same request again.
    Repeated,
    /// Its id is used for something else: the session is marked from here on.
    Reused,
}

impl Life {
    /// One with a standalone stream.
    pub(crate) fn new() -> Self {
        Self { lines: vec![Line::default()], ..Self::default() }
    }

    /// How many streams are kept, where so many finished ones are.
    pub(crate) fn kept(&self, bound: usize) -> usize {
        self.lines.len() - self.finished.len().saturating_sub(bound)
    }
}

impl Session {
    /// One whose `initialize` is being answered.
    pub(crate) fn new(id: SessionId, principal: Option<&'static str>, now: u64) -> Self {
        Self {
            id,
            text: id.to_string().into(),
            principal,
            began: now,
            published: None,
            revision: "",
            confirmed: false,
            ended: None,
            lives: vec![Life::new()],
            flights: BTreeMap::new(),
            asks: BTreeMap::new(),
            seen: HashMap::new(),
            marked: None,
            subscriptions: Vec::new(),
            list_changed: Vec::new(),
            cancels: HashSet::new(),
            delete_asked: false,
            close_ordered: None,
            rotate_ordered: None,
            used: now,
            maybe_used: now,
            attached: 0,
            maybe_attached: 0,
        }
    }

    /// The number of its present life, from 1.
    pub(crate) fn life(&self) -> u32 {
        self.lives.len() as u32
    }

    /// Its present life.
    pub(crate) fn present(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a session has a life")
    }

    /// A stream.
    pub(crate) fn line(&self, life: u32, stream: u32) -> Option<&Line> {
        self.lives.get(life.checked_sub(1)? as usize)?.lines.get(stream as usize)
    }

    /// The same, to change.
    pub(crate) fn line_mut(&mut self, life: u32, stream: u32) -> Option<&mut Line> {
        self.lives.get_mut(life.checked_sub(1)? as usize)?.lines.get_mut(stream as usize)
    }

    /// Whether it lives; as it was before `step` where that is given.
    pub(crate) fn lives(&self, before: Option<u64>) -> bool {
        self.published.is_some() && self.ended.is_none_or(|(step, _)| before == Some(step))
    }

    /// The life that it is in; as it was before `step` where that is given.
    pub(crate) fn life_at(&self, before: Option<u64>) -> u32 {
        let turned = |life: &&Life| before.is_some() && life.over == before;
        self.life() - self.lives.iter().filter(turned).count() as u32
    }

    /// Begins a stream that answers a POST.
    pub(crate) fn begin_line(&mut self) -> u32 {
        let life = self.present();
        life.lines.push(Line::default());
        life.lines.len() as u32 - 1
    }

    /// A request with this id and body runs on this stream: how does it stand, and what follows from it?
    pub(crate) fn see(&mut self, id: &Rc<str>, body: u64, stream: u32, step: u64) -> Standing {
        let place = (self.lives.len(), stream);
        if self.marked.is_some() {
            self.seen.entry(id.clone()).or_insert(Seen { body, place });
            return Standing::New;
        }
        match self.seen.get(id) {
            None => {
                self.seen.insert(id.clone(), Seen { body, place });
                Standing::New
            }
            // One id twice in one batch is no batch sent twice.
            Some(seen) if seen.body == body && seen.place != place => Standing::Repeated,
            Some(_) => {
                self.marked = Some(step);
                Standing::Reused
            }
        }
    }

    /// Whether this id was seen.
    pub(crate) fn has_seen(&self, id: &str) -> bool {
        self.seen.contains_key(id)
    }

    /// How many ids it has seen.
    pub(crate) fn ids_seen(&self) -> usize {
        self.seen.len()
    }

    /// Whether a stream's tombstone is gone, where so many are kept.
    pub(crate) fn forgotten(&self, life: u32, stream: u32, bound: usize) -> bool {
        let Some(life) = self.lives.get(life as usize - 1) else { return false };
        let kept = life.finished.len().saturating_sub(bound);
        life.finished[..kept].contains(&stream)
    }

    /// Calls in flight with this id of the client's.
    pub(crate) fn in_flight_as(&self, id: &str, of: impl Fn(usize) -> Rc<str>) -> usize {
        self.flights.values().filter(|flight| &*of(flight.marker) == id).count()
    }
}
