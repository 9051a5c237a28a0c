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
    /// Request fields that repeat what the body says, and are checked against it.
    pub mirrored_headers: &'static [&'static str],
    /// Methods that older revisions have and this one does not.
    pub removed_methods: &'static [&'static str],
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
    mirrored_headers: &[],
    removed_methods: &[],
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
        mirrored_headers: &[],
        removed_methods: &[],
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
        mirrored_headers: &[],
        removed_methods: &[],
    },
    Rules {
        name: "2026-07-28",
        sessions: false,
        streamable: true,
        resumption: false,
        batches: false,
        opening_event: false,
        header_required: true,
        // 2026-07-28, Streamable HTTP, "Cancellation": "Closing the SSE response stream MUST be treated by the server as cancellation of
        // that request."
        close_cancels: true,
        // The same, "Standard Request Headers": "These headers are REQUIRED for compliance."
        mirrored_headers: &["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"],
        // 2026-07-28, changelog: the handshake, pings, and what needed a session to remember it are gone.
        removed_methods: &["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"],
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

    /// Those that this transport serves, newest first: what a client that asks for another may choose from.
    pub const SERVED: [Self; 4] = [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26];

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

/// The table for people, one revision a line: which may resume, batch, have sessions, and needs which headers.
pub fn explain() -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let columns =
        ["revision", "sessions", "resumes", "batches", "opening event", "a close cancels", "headers checked", "methods gone"];
    let mut line = |cells: [&str; 8]| {
        let [name, cells @ .., last] = cells;
        let padded: String = cells.iter().zip([8, 7, 7, 13, 15, 42]).map(|(cell, width)| format!("  {cell:width$}")).collect();
        writeln!(text, "{name:10}{padded}  {last}").expect("a string takes every byte");
    };
    line(columns);
    let word = |yes| if yes { "yes" } else { "no" };
    for rules in &TABLE {
        let listed = |list: &[&str], none: &str| if list.is_empty() { none.to_owned() } else { list.join(", ") };
        // Of a session's requests only the revision is named, and its absence is no fault.
        let headers = listed(rules.mirrored_headers, "MCP-Protocol-Version, where it is sent");
        line([
            rules.name,
            word(rules.sessions),
            word(rules.resumption),
            word(rules.batches),
            word(rules.opening_event),
            word(rules.close_cancels),
            &headers,
            &listed(rules.removed_methods, "none"),
        ]);
    }
    text.push_str(
        "\n2024-11-05 is served inside sessions only, as 2025-03-26 is. Its own transport, HTTP+SSE with two endpoints, is not: the GET that\n\
         such a client opens with is answered 400 `session_required`, which those clients report as a failed connection.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    #[test]
    fn the_explanation_has_a_line_for_each_revision() {
        let text = explain();
        let lines: Vec<_> = text.lines().skip(1).take(TABLE.len()).collect();
        assert!(lines.iter().zip(&TABLE).all(|(line, rules)| line.starts_with(rules.name)), "{text}");
        let newest = lines.last().expect("a line");
        assert!(newest.contains("Mcp-Method, Mcp-Name") && newest.contains("logging/setLevel"), "{newest}");
    }

    #[test]
    fn what_is_served_is_what_has_this_transport() {
        let served: Vec<_> = TABLE.iter().rev().filter(|rules| rules.streamable).map(|rules| rules.name).collect();
        assert_eq!(Revision::SERVED.map(Revision::as_str).to_vec(), served);
    }

    #[test]
    fn heads_are_checked_exactly_where_there_is_no_session_to_know_better() {
        for rules in &TABLE {
            assert_eq!(rules.sessions, rules.mirrored_headers.is_empty(), "{rules:?}");
            assert_eq!(rules.header_required, !rules.mirrored_headers.is_empty(), "{rules:?}");
        }
    }

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
