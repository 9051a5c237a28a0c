//! What every request is held to before its session is looked at: names, credentials, forms, revisions; and what caches are told.
//!
//! Never resumes anything.

use serde_json::json;

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::request::Request;
use crate::check::sentences;
use crate::check::session::Session;
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};

/// A name that no server of anybody's has (RFC 2606).
const ELSEWHERE: &str = "rebound.example";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "host",
        group: "http",
        expects: "a request for a foreign host is refused with 403, one without a host or with two with 400",
        boundary: "GET rows 0 and 1",
        needs: &[Need::Loopback],
        rests_on: &[],
        run: host,
    },
    Case {
        name: "origin",
        group: "http",
        expects: "a request from a foreign origin is refused with 403",
        boundary: "GET row 1",
        needs: &[Need::Loopback],
        rests_on: &[],
        run: origin,
    },
    Case {
        name: "cors-preflight",
        group: "http",
        expects: "a page on this machine may ask: OPTIONS allows its origin, its methods and the fields of MCP, and shows it the session id",
        boundary: "OPTIONS: CORS preflight",
        needs: &[Need::Loopback],
        rests_on: &[],
        run: preflight,
    },
    Case {
        name: "unauthorized",
        group: "http",
        expects: "a request without credentials, and one with wrong ones, is refused with 401 and WWW-Authenticate",
        boundary: "GET row 2",
        needs: &[Need::Token],
        rests_on: &[],
        run: unauthorized,
    },
    Case {
        name: "accept",
        group: "http",
        expects: "a GET that does not accept an event stream is refused with 406",
        boundary: "GET row 3",
        needs: &[Need::Listening],
        rests_on: &[],
        run: accept,
    },
    Case {
        name: "revision",
        group: "http",
        expects: "a revision that is none is refused with 400; none at all is the session's own",
        boundary: "GET row 4",
        needs: &[],
        rests_on: &[],
        run: revision,
    },
    Case {
        name: "methods",
        group: "http",
        expects: "other methods are refused with 405, with those that are allowed",
        boundary: "HEAD and others: 405 with Allow",
        needs: &[],
        rests_on: &[],
        run: methods,
    },
    Case {
        name: "no-store",
        group: "http",
        expects: "every answer forbids caches to keep it: all sessions share one URL, and 404 and 405 may be kept by default",
        boundary: "Every answer carries Cache-Control: no-store",
        needs: &[],
        rests_on: &[],
        run: no_store,
    },
    Case {
        name: "adopted-session",
        group: "http",
        expects: "no answer but that to `initialize` carries another session id: a client would take it for its own",
        boundary: "POST: no answer but initialize's carries a session id other than the one presented",
        needs: &[Need::Sessions],
        rests_on: &[],
        run: adopted,
    },
];

fn ping(bench: &Bench, session: &Session) -> Request {
    bench.post(session, &json!({ "jsonrpc": "2.0", "id": bench.next_id(), "method": "ping" }))
}

/// Notes an answer with another status than the page has.
fn want(bench: &Bench, what: &str, reply: &Reply, status: u16, row: &'static str, why: &str) {
    if reply.status() != status {
        bench.unclear(row, format!("{what} was answered {}, in place of {status}{why}", reply.words()));
    }
}

fn host(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let rebinding = ": a page elsewhere reaches it by DNS rebinding";
    let foreign = ping(bench, &session).set("Host", ELSEWHERE);
    want(bench, "a foreign host", &bench.ask(&foreign)?, 403, "GET row 1", rebinding);
    let none = ping(bench, &session).without("Host");
    want(bench, "no host", &bench.ask(&none)?, 400, "GET row 0", "");
    let two = ping(bench, &session).with("Host", ELSEWHERE);
    want(bench, "two hosts", &bench.ask(&two)?, 400, "GET row 0", ": a proxy may have read the other");
    Ok(())
}

fn origin(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let origin = format!("http://{ELSEWHERE}");
    for (what, request) in [("a POST", ping(bench, &session)), ("a GET", bench.get(&session))] {
        let reply = bench.ask(&request.with("Origin", &origin))?;
        if reply.status() != 403 && !(what == "a GET" && reply.status() == 405) {
            bench.violates(&sentences::ORIGIN, format!("{what} from the origin {origin} was answered {}", reply.words()));
        }
    }
    Ok(())
}

fn preflight(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "OPTIONS: CORS preflight";
    const FIELDS: [&str; 4] = ["content-type", "mcp-session-id", "mcp-protocol-version", "last-event-id"];
    let request = bench
        .bare("OPTIONS")
        .with("Origin", "http://localhost:3000")
        .with("Access-Control-Request-Method", "POST")
        .with("Access-Control-Request-Headers", &FIELDS.join(","));
    let reply = bench.ask(&request)?;
    if !(200..300).contains(&reply.status()) {
        bench.unclear(ROW, format!("a preflight was answered {}: no page can use the server", reply.words()));
        return Ok(());
    }
    let field = |name: &str| reply.head().text(name).unwrap_or_default().to_ascii_lowercase();
    let (allowed, methods, origin) =
        (field("access-control-allow-headers"), field("access-control-allow-methods"), field("access-control-allow-origin"));
    let lacks = FIELDS.into_iter().filter(|name| allowed != "*" && !allowed.contains(name));
    let lacks: Vec<_> =
        lacks.chain(["get", "delete"].into_iter().filter(|name| methods != "*" && !methods.contains(name))).collect();
    if origin.is_empty() {
        bench.unclear(ROW, "a preflight from a page on this machine is not allowed its origin");
    } else if !lacks.is_empty() {
        bench.unclear(
            ROW,
            format!("a preflight does not allow {}: a page cannot resume, or cannot end its session", lacks.join(", ")),
        );
    }
    let session = bench.session()?;
    let answer = bench.ask(&ping(bench, &session).with("Origin", "http://localhost:3000"))?;
    let exposed = answer.head().text("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
    if !origin.is_empty() && session.id.is_some() && exposed != "*" && !exposed.contains("mcp-session-id") {
        bench.unclear(ROW, "answers do not expose Mcp-Session-Id: a page cannot read its own session's id");
    }
    Ok(())
}

fn unauthorized(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "GET row 2: 401 with WWW-Authenticate";
    let session = bench.session()?;
    let without = ping(bench, &session).without("Authorization");
    let wrong = ping(bench, &session).authorized("no-such-token");
    for (what, request) in [("a request without credentials", without), ("a request with wrong credentials", wrong)] {
        let reply = bench.ask(&request)?;
        let asks = reply.head().text("www-authenticate").is_some();
        if bench.must_keep(what, reply, &[401], ROW)? && !asks {
            bench.unclear(ROW, format!("{what} is not told by WWW-Authenticate what is wanted"));
        }
    }
    Ok(())
}

fn accept(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let request = bench.get(&session).set("Accept", "application/json");
    want(bench, "a GET that accepts JSON only", &bench.ask(&request)?, 406, "GET row 3", "");
    Ok(())
}

fn revision(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    for (what, request) in [("a POST", ping(bench, &session)), ("a GET", bench.get(&session))] {
        let reply = bench.ask(&request.clone().set("MCP-Protocol-Version", "1999-01-01"))?;
        if reply.status() != 400 && !(what == "a GET" && reply.status() == 405) {
            bench.violates(&sentences::REVISION, format!("{what} of the revision 1999-01-01 was answered {}", reply.words()));
        }
        let reply = bench.ask(&request.without("MCP-Protocol-Version"))?;
        if reply.status() != 200 && !(what == "a GET" && reply.status() == 405) {
            bench
                .unclear("GET row 4", format!("{what} of a session without MCP-Protocol-Version was answered {}", reply.words()));
        }
    }
    Ok(())
}

fn methods(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "HEAD and others: 405 with Allow";
    let session = bench.session()?;
    let reply = bench.ask(&bench.of(&session, bench.bare("PUT").body("{}").with("Content-Type", "application/json")))?;
    want(bench, "a PUT", &reply, 405, ROW, "");
    if reply.status() == 405 && reply.head().text("allow").is_none() {
        bench.unclear(ROW, "405 does not say what is allowed");
    }
    Ok(())
}

fn no_store(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let nowhere = Session { id: session.id.as_ref().map(|_| "no-such-session".to_owned()), ..session.clone() };
    let asked = [
        ("an answer", ping(bench, &session)),
        ("a stream", bench.get(&session)),
        ("a refusal of a session", ping(bench, &nowhere)),
        ("a refusal of a method", bench.of(&session, bench.bare("PUT").body("{}"))),
    ];
    let mut kept = Vec::new();
    for (what, request) in asked {
        let reply = bench.ask(&request)?;
        let told = reply.head().text("cache-control").unwrap_or_default().to_ascii_lowercase();
        if !told.contains("no-store") {
            kept.push(format!("{what} ({})", reply.status()));
        }
    }
    if !kept.is_empty() {
        bench.unclear("Every answer carries Cache-Control: no-store", format!("without `no-store`: {}", kept.join(", ")));
    }
    Ok(())
}

fn adopted(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "POST: no answer but initialize's carries a session id other than the one presented";
    let session = bench.session()?;
    let nowhere = Session { id: Some("no-such-session".to_owned()), ..session.clone() };
    for (what, session, request) in [
        ("a POST", &session, ping(bench, &session)),
        ("a GET", &session, bench.get(&session)),
        ("a refused POST", &nowhere, ping(bench, &nowhere)),
        ("a refused GET", &nowhere, bench.get(&nowhere)),
    ] {
        let reply = bench.ask(&request)?;
        if let Some(given) = reply.head().text("mcp-session-id").filter(|given| session.id.as_deref() != Some(given)) {
            bench.breaks(
                Cost::LostSession,
                ROW,
                format!("the answer to {what} carries the session id {given:?}, which is another's"),
            );
        }
    }
    Ok(())
}
