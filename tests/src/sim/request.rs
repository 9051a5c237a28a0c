//! What a client means by a request, for the oracle, and the same as bytes, for the shard.
//!
//! Never says what the answer should be.

use std::rc::Rc;

use super::rng::Rng;

/// A request as its client meant it.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    /// What.
    pub(crate) verb: Verb,
    /// What is wrong with its head, in the order in which the boundary refuses.
    pub(crate) flaws: Vec<Flaw>,
    /// The name in `X-Principal`; none is the anonymous principal.
    pub(crate) principal: Option<&'static str>,
    /// `Mcp-Session-Id`.
    pub(crate) session: Shown,
    /// `Last-Event-ID`.
    pub(crate) cursor: Shown,
    /// `MCP-Protocol-Version`.
    pub(crate) revision: Option<&'static str>,
    /// HTTP/1.0.
    pub(crate) old_http: bool,
    /// Whether the connection may carry another request after it.
    pub(crate) keep_alive: bool,
    /// `Origin`, an allowed one.
    pub(crate) origin: Option<&'static str>,
}

/// A header that may be absent, or sent twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Not sent.
    Absent,
    /// Sent once.
    One(Rc<str>),
    /// Sent twice, with this value each.
    Twice(Rc<str>),
}

/// The method, and what a POST carries.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Get,
    Post(Post),
    Delete,
    Options,
    Head,
    Put,
}

/// What a POST carries. Numbers are places in the oracle's book.
#[derive(Clone, Debug)]
pub(crate) enum Post {
    /// `initialize`.
    Initialize(usize),
    /// One request.
    Call(usize),
    /// A batch of requests, and one note.
    Batch(Rc<[usize]>, Option<usize>),
    /// A notification.
    Note(usize),
    /// `notifications/initialized`.
    Initialized,
    /// `notifications/cancelled` of this id.
    Cancel(Rc<str>),
    /// An answer to this request of the server.
    Respond(u64),
    /// No JSON.
    NotJson,
    /// JSON, and no JSON-RPC.
    NotRpc,
    /// A batch with `initialize` in it.
    InitializeInBatch,
}

/// What is wrong with a head, in the order of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flaw {
    /// Two lengths: it could be read in two ways.
    Smuggled,
    /// No `Host`, in HTTP/1.1.
    NoHost,
    /// `Host` twice.
    TwoHosts,
    /// A `Host` that is not ours.
    StrangeHost,
    /// An `Origin` that is not allowed.
    StrangeOrigin,
    /// Another path.
    Path,
    /// The principal "nobody", whom the world does not know.
    Nobody,
    /// `Accept` without what the answer would be.
    Accept,
    /// `Content-Type` is not JSON.
    ContentType,
    /// A body over the limit.
    TooLarge,
}

/// A request as bytes.
#[derive(Debug)]
pub(crate) struct Written {
    /// What is sent at once.
    pub(crate) first: Vec<u8>,
    /// The body, where the client waits for `100 Continue`.
    pub(crate) deferred: Option<Vec<u8>>,
}

impl Intent {
    /// A request without a session or a flaw.
    pub(crate) fn new(verb: Verb) -> Self {
        Self {
            verb,
            flaws: Vec::new(),
            principal: None,
            session: Shown::Absent,
            cursor: Shown::Absent,
            revision: None,
            old_http: false,
            keep_alive: true,
            origin: None,
        }
    }

    /// Whether it has this flaw.
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }

    fn method(&self) -> &'static str {
        match self.verb {
            Verb::Get => "GET",
            Verb::Post(_) => "POST",
            Verb::Delete => "DELETE",
            Verb::Options => "OPTIONS",
            Verb::Head => "HEAD",
            Verb::Put => "PUT",
        }
    }

    fn head(&self) -> String {
        let path = if self.has(Flaw::Path) { "/other" } else { "/mcp" };
        let mut head = format!("{} {path} HTTP/1.{}\r\n", self.method(), if self.old_http { 0 } else { 1 });
        let mut field = |name: &str, value: &str| {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        };
        if !self.has(Flaw::NoHost) {
            field("Host", if self.has(Flaw::StrangeHost) { "evil.example" } else { "localhost:8931" });
        }
        if self.has(Flaw::TwoHosts) {
            field("host", "localhost");
        }
        if self.has(Flaw::StrangeOrigin) {
            field("Origin", "https://evil.example");
        } else if let Some(origin) = self.origin {
            field("Origin", origin);
        }
        match self.verb {
            Verb::Post(_) => {
                field("Accept", if self.has(Flaw::Accept) { "application/json" } else { "application/json, text/event-stream" });
                field("Content-Type", if self.has(Flaw::ContentType) { "text/plain" } else { "application/json" });
            }
            _ => field("Accept", if self.has(Flaw::Accept) { "text/html" } else { "text/event-stream" }),
        }
        if self.has(Flaw::Nobody) {
            field("X-Principal", "nobody");
        } else if let Some(principal) = self.principal {
            field("X-Principal", principal);
        }
        for (name, shown) in [("Mcp-Session-Id", &self.session), ("Last-Event-ID", &self.cursor)] {
            match shown {
                Shown::Absent => {}
                Shown::One(value) => field(name, value),
                Shown::Twice(value) => {
                    field(name, value);
                    field(name, value);
                }
            }
        }
        if let Some(revision) = self.revision {
            field("MCP-Protocol-Version", revision);
        }
        match (self.old_http, self.keep_alive) {
            (false, false) => field("Connection", "close"),
            (true, true) => field("Connection", "keep-alive"),
            _ => {}
        }
        head
    }

    /// As bytes, with this body.
    pub(crate) fn write(&self, body: &[u8], most_body: usize, rng: &mut Rng) -> Written {
        let mut head = self.head();
        let mut deferred = None;
        let mut framed = Vec::new();
        if let Verb::Post(_) = self.verb {
            if self.has(Flaw::TooLarge) {
                // Refused before it is read: not a byte of it need follow.
                head.push_str(&format!("Content-Length: {}\r\n", most_body + 1));
            } else if self.has(Flaw::Smuggled) {
                head.push_str(&format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", body.len()));
            } else if !self.old_http && rng.chance(200) {
                head.push_str("Transfer-Encoding: chunked\r\n");
                let grain = rng.range(1, 200) as usize;
                for chunk in body.chunks(grain) {
                    framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    framed.extend_from_slice(chunk);
                    framed.extend_from_slice(b"\r\n");
                }
                framed.extend_from_slice(b"0\r\n\r\n");
            } else {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
                framed.extend_from_slice(body);
            }
            if !self.old_http && self.flaws.is_empty() && rng.chance(60) {
                head.push_str("Expect: 100-continue\r\n");
                deferred = Some(std::mem::take(&mut framed));
            }
        } else if self.has(Flaw::Smuggled) {
            head.push_str("Content-Length: 1\r\nContent-Length: 2\r\n");
        }
        head.push_str("\r\n");
        let mut first = head.into_bytes();
        first.append(&mut framed);
        Written { first, deferred }
    }
}
