//! What the rows look at servers with: shorter patience than the other tests', since a fault may be that nothing comes.

use std::time::Duration;

use rejoin_tests::boundary_server::{BoundaryServer, Fault, Settings};
use rejoin_tests::session::{NOVEMBER, Session, call, call_with_token, text_of, tick};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Answer, Request, Step, Stream, ask};
use serde_json::{Value, json};

/// How long to wait for what must come.
pub(crate) const SOON: Duration = Duration::from_secs(6);

/// A row of the page: asks a server of its own, and panics where it is not kept.
pub(crate) type Row = fn(Option<Fault>);

/// A server with usual settings but for these.
pub(crate) fn server(fault: Option<Fault>, change: impl FnOnce(&mut Settings)) -> BoundaryServer {
    let mut settings = Settings::default();
    change(&mut settings);
    BoundaryServer::start_with(fault, settings)
}

pub(crate) fn begin(server: &BoundaryServer) -> Session {
    Session::begin(server.address, NOVEMBER)
}

/// A call of `count` with a progress token.
pub(crate) fn count(id: u64, events: u64, every_ms: u64) -> Value {
    call_with_token(id, format!("token {id}"), "count", json!({"events": events, "every_ms": every_ms}))
}

/// A call of `broadcast`.
pub(crate) fn broadcast(id: u64, events: u64) -> Value {
    call(id, "broadcast", json!({"count": events, "interval_ms": 0}))
}

/// How often `count` was executed in a session, asked under an id that was not used.
pub(crate) fn effects(session: &Session, id: u64) -> u64 {
    let result = session.result(&call(id, "effects", json!({})));
    text_of(&result).parse().expect("a number")
}

/// The next block that is no comment.
pub(crate) fn next(stream: &mut Stream) -> Block {
    loop {
        match stream.step(SOON) {
            Step::Block(block) if block.is_comment() => {}
            Step::Block(block) => return block,
            other => stream.fail(&format!("no event: {other:?}")),
        }
    }
}

/// The next block with a message.
pub(crate) fn message(stream: &mut Stream) -> Block {
    loop {
        let block = next(stream);
        if block.is_message() {
            return block;
        }
    }
}

/// The blocks to the clean end, comments and openings apart.
pub(crate) fn rest(stream: &mut Stream) -> Vec<Block> {
    let mut blocks = Vec::new();
    loop {
        match stream.step(SOON) {
            Step::Block(block) if block.is_comment() || block.is_opening() => {}
            Step::Block(block) => blocks.push(block),
            Step::CleanEnd => return blocks,
            other => stream.fail(&format!("no clean end: {other:?} behind {} blocks", blocks.len())),
        }
    }
}

/// The whole answer to a call that was not cut.
pub(crate) fn whole(session: &Session, message: &Value) -> Vec<Block> {
    rest(&mut session.call(message))
}

/// Asserts that blocks are the progress from one number to another and then the result, and nothing else.
#[track_caller]
pub(crate) fn counts(blocks: &[Block], from: u64, to: u64) {
    let numbers: Vec<u64> = blocks.iter().filter_map(tick).collect();
    assert_eq!(numbers, (from..=to).collect::<Vec<_>>(), "{blocks:#?}");
    let last = blocks.last().expect("a result").json();
    assert_eq!(text_of(&last["result"]), format!("counted to {to}"), "{blocks:#?}");
    assert_eq!(blocks.len(), numbers.len() + 1, "{blocks:#?}");
}

/// Asserts that blocks say the same under the same ids.
#[track_caller]
pub(crate) fn same(blocks: &[Block], as_these: &[Block]) {
    let said = |blocks: &[Block]| -> Vec<(Option<String>, Option<String>)> {
        blocks.iter().map(|block| (block.id.clone(), block.data.clone())).collect()
    };
    assert_eq!(said(blocks), said(as_these));
}

/// The numbers of a broadcast's messages.
pub(crate) fn heard(blocks: &[Block]) -> Vec<u64> {
    let numbers = blocks.iter().filter(|block| block.is_message()).map(|block| block.json()["params"]["data"]["tick"].as_u64());
    numbers.collect::<Option<_>>().expect("nothing but what was broadcast")
}

/// Asserts a refusal; `Cache-Control` is a row of its own.
#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let shown = format!("{}{}", answer.head, String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.status(), status, "{shown}");
    assert_eq!(answer.head.field("Rejoin-Verdict"), Some(code), "{shown}");
    assert_eq!(answer.head.field("Mcp-Session-Id"), None, "{shown}");
    let error = answer.json()["error"].clone();
    assert_eq!(error["data"]["code"], code, "{shown}");
    assert!(error["data"]["action"].is_string() && error["message"].is_string(), "{shown}");
    error
}

/// Asserts that a session is over, for this reason.
#[track_caller]
pub(crate) fn dead(answer: &Answer, reason: &str) {
    let error = refused(answer, 404, "session_expired");
    assert_eq!((error["code"].as_i64(), &error["data"]["reason"]), (Some(-32001), &json!(reason)));
}

/// The answer to a request that must not open a stream; one that opens is not waited for.
#[track_caller]
pub(crate) fn no_stream(session: &Session, request: &Request) -> Answer {
    let mut connection = rejoin_tests::wire::Connection::open(session.address);
    connection.send(request);
    let head = connection.head();
    assert!(head.field("Content-Type") != Some("text/event-stream"), "a stream: {head}");
    let body = connection.body();
    Answer { head, body }
}

/// Asserts that a cursor stands at the end of a finished stream.
#[track_caller]
pub(crate) fn complete(session: &Session, cursor: &str) {
    let answer = no_stream(session, &session.get_after(cursor));
    assert_eq!((answer.status(), answer.head.field("Rejoin-Verdict")), (204, Some("complete")), "{}", answer.head);
}

/// Asserts that a session lives.
#[track_caller]
pub(crate) fn lives(session: &Session, id: u64) {
    let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    assert_eq!(ask(session.address, &session.post(&ping)).status(), 200);
}
