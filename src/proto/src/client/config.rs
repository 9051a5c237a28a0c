//! What a client is told once: where its server is, who it says it is, and its bounds.
//!
//! Shared by all machines of a process, so that a session costs no copy of it.

use std::time::Duration;

use crate::mcp::{self, Revision};

/// What machines share.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `Host`: name and port, as a URL has them.
    pub authority: Box<str>,
    /// The endpoint's path, with its query.
    pub path: Box<str>,
    /// Further fields of every request, such as `Authorization`.
    pub fields: Vec<(Box<str>, Box<str>)>,
    /// `clientInfo`: a JSON object with `name` and `version`.
    pub client_info: Box<str>,
    /// `capabilities`: a JSON object.
    pub capabilities: Box<str>,
    /// The revision to offer.
    pub revision: Revision,
    /// Whether the standalone stream is opened as soon as the session has begun.
    pub listen: bool,
    /// Whether notifications come as events. Where not, only the observer sees them, and nothing is allocated for them.
    pub notifications: bool,
    /// Who says when a lost stream is returned to.
    pub returns: Returns,
    /// The bounds.
    pub limits: Limits,
}

/// Who says when a lost stream is returned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// The server, by `retry`; the limits, where it says nothing.
    ByRetry,
    /// The caller, by `Input::Return`.
    ByCaller,
}

/// The bounds of one session. Sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// An answer's head. More: unreadable. Reason: it is buffered.
    pub head_bytes: usize,
    /// An answer of one JSON body. More: unreadable. Reason: it is buffered; a server's own limit is 4 MiB by default.
    pub answer_bytes: usize,
    /// The body of a refusal. More: its reason is not known. Reason: an error page is of no use here.
    pub refusal_bytes: usize,
    /// An event, as it stands on the wire. More: unreadable. Reason: it is buffered.
    pub event_bytes: usize,
    /// An event id. More: `UnusableId`. Reason: it is kept, and goes back in a header.
    pub id_bytes: usize,
    /// Opaque event ids of a stream that are remembered, eight bytes each: an older one that comes again is not noticed.
    pub seen_ids: usize,
    /// Arrays and objects of a message that stand inside each other. More: `Malformed`. Reason: callers' parsers recurse.
    pub json_depth: usize,
    /// Calls without an outcome. One more is not taken.
    pub calls_in_flight: usize,
    /// Requests of the server without an answer. One more is answered with an error.
    pub requests: usize,
    /// Notifications and answers on their way. One more is not sent. Reason: each is kept until the server has it.
    pub posts: usize,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// From a request to its answer's end, calls and streams aside.
    pub answer_timeout: Duration,
    /// How long a stream may be silent before it counts as cut. `None`: for ever. Reason: rejoin's servers say something every 15 s, others
    /// say nothing.
    pub silence: Option<Duration>,
    /// How long a call's stream may stay open behind its answer.
    pub linger: Duration,
    /// Connections that are kept idle. One more is closed. Reason: calls that were made at once leave one each.
    pub idle: usize,
    /// How long an idle connection is used again. Reason: a server that closes it meanwhile makes the outcome of a call on it unknown, and
    /// the shortest time that stock servers keep one is 5 s.
    pub reuse: Duration,
    /// Age at which a call's outcome counts as unknown.
    pub call_max_age: Duration,
    /// How long to wait before a return where the server sent no `retry`.
    pub retry: Duration,
    /// The least wait, whatever `retry` says. Reason: a `retry` of 0 must not make a client spin.
    pub retry_min: Duration,
    /// The longest wait, whatever `retry` says and however often attempts failed.
    pub retry_max: Duration,
    /// Attempts in a row that may fail, for a stream or a message.
    pub attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 32 << 10,
            answer_bytes: 16 << 20,
            refusal_bytes: 64 << 10,
            event_bytes: 16 << 20,
            id_bytes: 1 << 10,
            seen_ids: 256,
            json_depth: 128,
            calls_in_flight: 256,
            requests: 64,
            posts: 64,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            silence: None,
            linger: Duration::from_secs(1),
            idle: 8,
            reuse: Duration::from_secs(2),
            call_max_age: Duration::from_secs(60 * 60),
            retry: Duration::from_secs(1),
            retry_min: Duration::from_millis(20),
            retry_max: Duration::from_secs(60),
            attempts: 12,
        }
    }
}

impl Limits {
    /// The kernel's bounds for reading one body of at most `body_bytes`, or the messages in it.
    pub(super) fn reading(&self, body_bytes: usize) -> crate::limits::Limits {
        crate::limits::Limits {
            body_bytes,
            head_bytes: self.head_bytes,
            json_depth: self.json_depth,
            id_bytes: self.id_bytes,
            ..crate::limits::Limits::default()
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadConfig {
    /// The authority is empty or not visible ASCII.
    Authority,
    /// The path does not begin with a slash, or is not visible ASCII.
    Path,
    /// A field's name is no token or is one that every request has, or its value has a control in it.
    Field,
    /// `client_info` or `capabilities` is no JSON object.
    Json,
    /// The revision has no sessions on this transport.
    Revision,
}

/// Fields that the machine writes by itself.
const OWN: [&str; 10] = [
    "host",
    "accept",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "idempotency-key",
];

impl Config {
    /// A configuration for the endpoint at `path` of `authority`, everything else by default.
    pub fn new(authority: &str, path: &str) -> Self {
        Self {
            authority: authority.into(),
            path: path.into(),
            fields: Vec::new(),
            client_info: concat!(r#"{"name":"rejoin","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#).into(),
            capabilities: "{}".into(),
            revision: Revision::LATEST_WITH_SESSIONS,
            listen: true,
            notifications: true,
            returns: Returns::ByRetry,
            limits: Limits::default(),
        }
    }

    /// Whether requests made of it are what they seem.
    pub fn check(&self) -> Result<(), BadConfig> {
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if !visible(&self.authority) {
            return Err(BadConfig::Authority);
        }
        if !visible(&self.path) || !self.path.starts_with('/') {
            return Err(BadConfig::Path);
        }
        let bad_field = |(name, value): &(Box<str>, Box<str>)| {
            !crate::http::is_token(name.as_bytes())
                || OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
                || value.bytes().any(crate::http::is_control)
        };
        if self.fields.iter().any(bad_field) {
            return Err(BadConfig::Field);
        }
        if ![&self.client_info, &self.capabilities].into_iter().all(|json| mcp::is_json_object(json.as_bytes())) {
            return Err(BadConfig::Json);
        }
        let rules = self.revision.rules();
        if rules.sessions && rules.streamable { Ok(()) } else { Err(BadConfig::Revision) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_begin_a_line_of_its_own_is_refused() {
        let with = |change: fn(&mut Config)| {
            let mut config = Config::new("localhost:1", "/mcp");
            change(&mut config);
            config.check()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|config| config.authority = "a\r\nb".into()), Err(BadConfig::Authority));
        assert_eq!(with(|config| config.path = "mcp".into()), Err(BadConfig::Path));
        assert_eq!(with(|config| config.path = "/a b".into()), Err(BadConfig::Path));
        assert_eq!(with(|config| config.fields = vec![("Authorization".into(), "Bearer x".into())]), Ok(()));
        for (name, value) in [("A b", "x"), ("A", "x\r\nB: y"), ("mcp-session-id", "x"), ("", "x")] {
            let mut config = Config::new("localhost:1", "/mcp");
            config.fields = vec![(name.into(), value.into())];
            assert_eq!(config.check(), Err(BadConfig::Field), "{name:?}");
        }
        assert_eq!(with(|config| config.client_info = "{".into()), Err(BadConfig::Json));
        assert_eq!(with(|config| config.revision = Revision::V2026_07_28), Err(BadConfig::Revision));
    }
}
