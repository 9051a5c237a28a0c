//! A connection between a client and whatever shard has it: bytes in both directions, each side's view of how far they came.
//!
//! Never loses or changes a byte by itself; the world says how far they go.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use rejoin_proto::shard::io::Close;

use super::client::Thing;
use super::oracle::Pending;
use super::request::Intent;
use super::rng::Rng;
use super::{answer, events};

/// Where a connection's shard side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a shard, under this name.
    At { shard: usize, conn: u32 },
    /// On its way from one to another.
    Moving,
    /// The shard was told that it is gone, or closed it.
    Gone,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) client: usize,
    /// No other has it.
    pub(crate) serial: u64,
    pub(crate) place: Place,
    /// What the client wrote, from `up_base` on: from the start of the first request that has no whole answer.
    up: Vec<u8>,
    up_base: u64,
    /// How far that has come to a shard.
    pub(crate) delivered: u64,
    /// The shard wants to read.
    pub(crate) reading: bool,
    /// The send under way.
    pub(crate) send: Option<Sending>,
    /// Bytes that shards sent; of those, what went into the socket; of those, what the client read.
    pub(crate) emitted: u64,
    pub(crate) acked: u64,
    pub(crate) received: u64,
    /// What the client will read, with the place of its last byte.
    pub(crate) things: VecDeque<(u64, Rc<Intent>, Thing)>,
    /// Requests without a whole answer.
    pub(crate) pendings: VecDeque<Pending>,
    /// The answer under way.
    pub(crate) answers: answer::Reader,
    pub(crate) events: events::Reader,
    pub(crate) body: Vec<u8>,
    /// The last answer said that the connection ends with it.
    pub(crate) said_close: bool,
    /// It was one connection too many: what was answered answers nothing.
    pub(crate) unasked: bool,
    /// The shard closed it.
    pub(crate) closing: Option<Close>,
    /// The client is gone.
    pub(crate) client_gone: bool,
    /// Sends make no progress: the reader is slow.
    pub(crate) stalled: bool,
    /// How many bytes go at once, at most.
    grain: usize,
    /// A body that waits for `100 Continue`.
    pub(crate) deferred: Option<Vec<u8>>,
    /// Positions of standalone streams that count as written when the socket has taken so much.
    pub(crate) marks: VecDeque<Mark>,
    /// The last of the send under way that did.
    pub(crate) reached: Option<Mark>,
    /// The session to whose stream it is attached, and whether that is certain.
    pub(crate) attached: Option<(usize, bool)>,
    /// Handoffs since the last answer.
    pub(crate) hops: u32,
    /// When the shard last sent something.
    pub(crate) last_send: u64,
}

/// A position of a standalone stream, and where its block ends among the bytes of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) end: u64,
    pub(crate) session: usize,
    pub(crate) life: u32,
    pub(crate) position: u64,
}

/// A send under way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) slices: Vec<Bytes>,
    pub(crate) left: u64,
    pub(crate) total: u64,
}

impl Wire {
    /// A new one.
    pub(crate) fn new(client: usize, shard: usize, conn: u32, grain: usize, serial: u64) -> Self {
        Self {
            client,
            serial,
            place: Place::At { shard, conn },
            up: Vec::new(),
            up_base: 0,
            delivered: 0,
            reading: true,
            send: None,
            emitted: 0,
            acked: 0,
            received: 0,
            things: VecDeque::new(),
            pendings: VecDeque::new(),
            answers: answer::Reader::default(),
            events: events::Reader::default(),
            body: Vec::new(),
            said_close: false,
            unasked: false,
            closing: None,
            client_gone: false,
            stalled: false,
            grain,
            deferred: None,
            marks: VecDeque::new(),
            reached: None,
            attached: None,
            hops: 0,
            last_send: 0,
        }
    }

    /// The client writes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.up.extend_from_slice(bytes);
    }

    /// Where the last byte that the client wrote stands.
    pub(crate) fn written(&self) -> u64 {
        self.up_base + self.up.len() as u64
    }

    /// Bytes on their way to a shard.
    pub(crate) fn on_the_way(&self) -> usize {
        (self.written() - self.delivered) as usize
    }

    /// The next bytes on their way to a shard, as many as come at once.
    pub(crate) fn next_up(&self, rng: &mut Rng) -> &[u8] {
        let from = (self.delivered - self.up_base) as usize;
        let count = self.piece(self.up.len() - from, rng);
        &self.up[from..from + count]
    }

    /// What a shard was given and has not answered in full: what a handoff must carry.
    pub(crate) fn unanswered(&self) -> &[u8] {
        &self.up[..(self.delivered - self.up_base) as usize]
    }

    /// Bytes that were given to a shard and that it may still hold.
    pub(crate) fn held(&self) -> u64 {
        self.delivered - self.up_base
    }

    /// Some of `most` bytes.
    pub(crate) fn piece(&self, most: usize, rng: &mut Rng) -> usize {
        match self.grain {
            1 => most.min(1),
            grain => most.min(1 + rng.index(grain)),
        }
    }

    /// A request is answered in full: its bytes are not needed any more.
    pub(crate) fn answered(&mut self, end: u64) {
        let count = (end - self.up_base).min(self.up.len() as u64) as usize;
        self.up.drain(..count);
        self.up_base = end.min(self.up_base + count as u64);
        self.delivered = self.delivered.max(self.up_base);
        self.hops = 0;
    }

    /// The client cuts what it wrote and what is not on a shard yet to so many bytes.
    pub(crate) fn cut_up(&mut self, keep: usize) {
        let from = (self.delivered - self.up_base) as usize;
        self.up.truncate(from + keep);
    }

    /// Whether another request may be written on it.
    pub(crate) fn takes_requests(&self) -> bool {
        let last = self.pendings.back();
        !self.client_gone
            && self.closing.is_none()
            && self.place != Place::Gone
            && self.deferred.is_none()
            && !self.said_close
            && self.pendings.len() < 4
            && last.is_none_or(|pending| pending.intent.keep_alive && pending.intent.flaws.is_empty())
    }

    /// Whether nobody has anything to do with it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.place == Place::Gone && (self.client_gone || self.received == self.acked)
    }
}
