//! Everything that clients ever POSTed, by number: a number stands in each body, so that whoever meets it again knows whose it is.
//!
//! Never forgets an entry, and never decides anything.

use std::rc::Rc;

/// All entries.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Requests, `initialize` included.
    pub(crate) calls: Vec<Call>,
    /// Notifications.
    pub(crate) notes: Vec<Note>,
    /// Bodies, so that a repost can be told from another body.
    bodies: u64,
}

/// A request as its client wrote it.
#[derive(Debug)]
pub(crate) struct Call {
    /// The session that it was sent to, as text; none for `initialize`.
    pub(crate) session: Option<Rc<str>>,
    /// Who sent it.
    pub(crate) principal: Option<&'static str>,
    /// Its method.
    pub(crate) method: &'static str,
    /// Its JSON-RPC id, as JSON.
    pub(crate) id: Rc<str>,
    /// Its progress token, as JSON.
    pub(crate) token: Option<Rc<str>>,
    /// The resource that it is about.
    pub(crate) uri: Option<Rc<str>>,
    /// Its params around the token.
    params: (Rc<str>, Rc<str>),
    /// Which body carried it: reposts have the same.
    pub(crate) body: u64,
    /// How often that body was POSTed.
    pub(crate) posts: u32,
    /// Whether a batch carried it.
    pub(crate) in_batch: bool,
    /// Its executions.
    pub(crate) runs: Vec<Run>,
    /// The first of a batch: where the batch was answered without being executed again.
    pub(crate) repeats: Vec<Run>,
}

/// One execution of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// In which session, by the oracle's number.
    pub(crate) session: usize,
    /// In which of its lives, from 1.
    pub(crate) life: u32,
    /// On which stream.
    pub(crate) stream: u32,
    /// The kernel's name for it.
    pub(crate) call: u64,
}

/// A notification as its client wrote it.
#[derive(Debug)]
pub(crate) struct Note {
    /// Its session, as text.
    pub(crate) session: Rc<str>,
    /// How often it was POSTed, and how often it reached the handler.
    pub(crate) posts: u32,
    pub(crate) delivered: u32,
}

impl Call {
    /// Every stream that may answer it.
    pub(crate) fn answered_on(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().chain(&self.repeats)
    }

    /// Its params with this token in the place of the client's.
    pub(crate) fn params_with(&self, token: &str) -> String {
        let token = if self.token.is_some() { token } else { "" };
        [&*self.params.0, token, &*self.params.1].concat()
    }

    /// Whether it is a `tools/call`: a repost of it is never executed again.
    pub(crate) fn is_tools_call(&self) -> bool {
        self.method == "tools/call"
    }

    /// As JSON-RPC.
    fn message(&self) -> String {
        let params = self.params_with(self.token.as_deref().unwrap_or_default());
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{params}}}"#, self.id, self.method)
    }
}

/// A request to be written.
pub(crate) struct Draft<'a> {
    pub(crate) session: Option<Rc<str>>,
    pub(crate) principal: Option<&'static str>,
    pub(crate) method: &'static str,
    pub(crate) id: Rc<str>,
    pub(crate) token: Option<Rc<str>>,
    /// For `initialize`.
    pub(crate) revision: Option<&'a str>,
    /// Bytes of padding.
    pub(crate) pad: usize,
}

impl Book {
    /// The next request, alone in its body; returns its number and the body.
    pub(crate) fn call(&mut self, draft: Draft<'_>) -> (usize, String) {
        let marker = self.enter(draft, false);
        self.bodies += 1;
        (marker, self.calls[marker].message())
    }

    /// The next requests, in one body with this note.
    pub(crate) fn batch(&mut self, drafts: Vec<Draft<'_>>, note: Option<usize>) -> (Rc<[usize]>, String) {
        let markers: Rc<[usize]> = drafts.into_iter().map(|draft| self.enter(draft, true)).collect();
        self.bodies += 1;
        let body = self.batch_body(&markers, note);
        (markers, body)
    }

    /// The body of a batch.
    pub(crate) fn batch_body(&self, markers: &[usize], note: Option<usize>) -> String {
        let mut messages: Vec<_> = markers.iter().map(|&marker| self.calls[marker].message()).collect();
        messages.extend(note.map(note_message));
        format!("[{}]", messages.join(","))
    }

    /// The body of a request that stands alone.
    pub(crate) fn body(&self, marker: usize) -> String {
        self.calls[marker].message()
    }

    fn enter(&mut self, draft: Draft<'_>, in_batch: bool) -> usize {
        let marker = self.calls.len();
        let Draft { session, principal, method, id, token, revision, pad } = draft;
        let uri = method.starts_with("resources/").then(|| Rc::from(format!("sim://{}", marker % 7)));
        let mut before = String::from("{");
        match (revision, &uri) {
            (Some(revision), _) => {
                before += &format!(
                    r#""protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"sim","version":"1"}},"#
                );
            }
            (None, Some(uri)) => before += &format!(r#""uri":"{uri}","#),
            (None, None) => before += r#""name":"work" , "#,
        }
        before += &format!(r#""marker":{marker},"pad":"{}""#, "p".repeat(pad));
        let after = match &token {
            Some(_) => {
                before += r#","_meta":{ "progressToken":"#;
                r#"}}"#
            }
            None => "}",
        };
        let params = (before.into(), after.into());
        let body = self.bodies;
        self.calls.push(Call {
            session,
            principal,
            method,
            id,
            token,
            uri,
            params,
            body,
            posts: 0,
            in_batch,
            runs: Vec::new(),
            repeats: Vec::new(),
        });
        marker
    }

    /// The next notification of this session; returns its number and the body.
    pub(crate) fn note(&mut self, session: Rc<str>) -> (usize, String) {
        let note = self.notes.len();
        self.notes.push(Note { session, posts: 0, delivered: 0 });
        (note, note_message(note))
    }

    /// The request that these params belong to.
    pub(crate) fn find(&self, params: &str) -> Option<usize> {
        let from = params.find(r#""marker":"#)? + r#""marker":"#.len();
        let rest = &params[from..];
        let to = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
        rest[..to].parse().ok().filter(|&marker: &usize| marker < self.calls.len())
    }
}

/// The params of a note.
pub(crate) fn note_params(note: usize) -> String {
    format!(r#"{{"note":{note}}}"#)
}

fn note_message(note: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{}}}"#, note_params(note))
}
