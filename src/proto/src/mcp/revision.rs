//! The revisions of MCP over Streamable HTTP, and what each admits: one table instead of an `if` in many places.
//!
//! Never negotiates: a handler's `initialize` result says which revision a session has.

/// A revision of the protocol, in order of age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05. Its transport over HTTP was another one (two endpoints), but servers that speak stdio still negotiate it: their
    /// sessions are served as 2025-03-26's.
    V2024_11_05,
    /// 2025-03-26, the first with Streamable HTTP.
    V2025_03_26,
    /// 2025-06-18: no batches any more; `MCP-Protocol-Version`.
    V2025_06_18,
    /// 2025-11-25: streams open with an event of an id and empty data.
    V2025_11_25,
    /// 2026-07-28: neither sessions nor resumption.
    V2026_07_28,
}

/// What a revision admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Its name on the wire.
    pub name: &'static str,
    /// Whether there are sessions, and with them `initialize`, GET and DELETE.
    pub sessions: bool,
    /// Whether the revision has this transport. The name of one without is accepted in its own sessions' requests only.
    pub streamable: bool,
    /// Whether `Last-Event-ID` means anything.
    pub resumption: bool,
    /// Whether a POST may carry a JSON array of messages.
    pub batches: bool,
    /// Whether each stream opens with an event of an id and an empty `data:` line. Older clients fail on it.
    pub opening_event: bool,
    /// Whether a request without `MCP-Protocol-Version` is refused. Elsewhere the session's revision, or an older one, is assumed.
    pub header_required: bool,
    /// Whether closing a call's stream cancels the call.
    pub close_cancels: bool,
}

/// 2025-03-26, and what is served like it.
const FIRST_STREAMABLE: Rules = Rules {
    name: "2025-03-26",
    sessions: true,
    streamable: true,
    resumption: true,
    // 2025-03-26, basic, "Batching": "MCP implementations MAY support sending JSON-RPC batches, but MUST support receiving
    // JSON-RPC batches." 2025-06-18 took them out again.
    batches: true,
    opening_event: false,
    header_required: false,
    close_cancels: false,
};

/// The table, in order of age.
const TABLE: [Rules; 5] = [
    Rules { name: "2024-11-05", streamable: false, ..FIRST_STREAMABLE },
    FIRST_STREAMABLE,
    Rules {
        name: "2025-06-18",
        sessions: true,
        streamable: true,
        resumption: true,
        batches: false,
        opening_event: false,
        header_required: false,
        close_cancels: false,
    },
    Rules {
        name: "2025-11-25",
        sessions: true,
        streamable: true,
        resumption: true,
        batches: false,
        // 2025-11-25, transports, "Sending Messages to the Server": "the server SHOULD immediately send an SSE event consisting of
        // an event ID and an empty data field".
        opening_event: true,
        header_required: false,
        // As 2025-06-18: "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
        close_cancels: false,
    },
    Rules {
        name: "2026-07-28",
        sessions: false,
        streamable: true,
        resumption: false,
        batches: false,
        opening_event: false,
        header_required: true,
        // 2026-07-28, Streamable HTTP: closing the response stream "MUST be treated by the server as cancellation".
        close_cancels: true,
    },
];

impl Revision {
    /// All of them, in order of age.
    pub const ALL: [Self; 5] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// The newest with sessions: what a server offers to a client that asks for a revision unknown to it.
    pub const LATEST_WITH_SESSIONS: Self = Self::V2025_11_25;

    /// What a request without `MCP-Protocol-Version` speaks where no session says otherwise. 2025-06-18, transports, "Protocol Version
    /// Header": "the server SHOULD assume protocol version `2025-03-26`".
    pub const ASSUMED: Self = Self::V2025_03_26;

    /// Those with sessions on this transport, newest first, as a refusal names them to people.
    pub const WITH_SESSIONS: &'static str = "2025-11-25, 2025-06-18, 2025-03-26";

    /// The revision with exactly this name: the value of an `MCP-Protocol-Version` header, or of a `protocolVersion`.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str().as_bytes() == name)
    }

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        self.rules().name
    }

    /// What it admits.
    pub const fn rules(self) -> &'static Rules {
        &TABLE[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    #[test]
    fn only_the_exact_name_is_a_revision() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str().as_bytes()), Some(revision));
        }
        for wrong in ["", "2024-10-07", "2025-11-25 ", " 2025-11-25", "2025-11-2", "2025-11-251", "2025/11/25", "DRAFT-2026-v1"] {
            assert_eq!(Revision::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_table_stands_in_order_of_age() {
        assert!(TABLE.is_sorted_by_key(|rules| rules.name));
        assert!(Revision::ALL.is_sorted());
        assert_eq!(Revision::V2025_06_18.as_str(), "2025-06-18");
    }

    #[test]
    fn a_refusal_names_exactly_the_revisions_with_sessions() {
        let named: Vec<_> =
            TABLE.iter().rev().filter(|rules| rules.sessions && rules.streamable).map(|rules| rules.name).collect();
        assert_eq!(Revision::WITH_SESSIONS, named.join(", "));
        assert_eq!(Revision::LATEST_WITH_SESSIONS.as_str(), named[0]);
        let message = Refusal::UnsupportedRevision.shape().message;
        assert!(message.ends_with(&format!("(supported: {})", Revision::WITH_SESSIONS)), "{message}");
    }

    #[test]
    fn only_the_first_revision_and_what_is_served_like_it_have_batches() {
        assert!(Revision::ALL.into_iter().all(|revision| revision.rules().batches == (revision <= Revision::V2025_03_26)));
    }

    #[test]
    fn the_revision_before_this_transport_is_served_as_the_first_with_it() {
        let (before, first) = (Revision::V2024_11_05.rules(), Revision::V2025_03_26.rules());
        assert!(!before.streamable && first.streamable);
        assert_eq!(Rules { name: first.name, streamable: true, ..*before }, *first);
    }

    #[test]
    fn an_absent_header_speaks_a_revision_that_needs_none() {
        assert!(!Revision::ASSUMED.rules().header_required);
    }

    #[test]
    fn resumption_needs_sessions_and_opening_events_need_resumption() {
        for rules in &TABLE {
            assert!(rules.sessions || !rules.resumption, "{rules:?}");
            assert!(rules.resumption || !rules.opening_event, "{rules:?}");
            assert!(rules.close_cancels != rules.resumption, "a close cannot both cancel and be resumed: {rules:?}");
        }
    }
}
