//! POST: refusals in their order, then one call, one execution.
//!
//! Never refuses a call that it has begun.

use std::sync::Arc;

use serde_json::{Value, json};

use super::get::admits;
use super::http::{Body, Request};
use super::log::{Ending, Stream, outcome_unknown};
use super::reply::{Reason, Refusal, Reply};
use super::serve::{Attachment, Plan};
use super::state::{REVISIONS, RecordKey, Seen, Session, State};
use super::tools::{self, Call, Tool};
use super::{Answer, Fault, Refused, Shared, random};

/// Calls in flight, each of which is a thread.
const CALLS: usize = 1024;

/// Bytes of a request's id, progress token or idempotency key, as JSON: longer ones are nobody's.
const NAME_LIMIT: usize = 1024;

/// What a body is.
enum Kind {
    Request,
    Notification,
    Response,
}

impl Shared {
    /// Answers a POST.
    pub(super) fn post(self: &Arc<Self>, request: &Request, principal: &str) -> Result<Answer, Refused> {
        if !admits(request, "text", "event-stream") || !admits(request, "application", "json") {
            return Err(Refusal::NotAcceptable.into());
        }
        let content = request.all("Content-Type");
        let media = content.first().and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if content.len() != 1 || !media.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::UnsupportedMediaType.into());
        }
        let Body::Whole(body) = &request.body else { return Err(Refusal::TooLarge.into()) };
        let message: Value = serde_json::from_slice(body).map_err(|_| Refusal::Parse)?;
        let kind = kind_of(&message)?;
        let id = message.get("id").cloned();
        let refused = |refusal| Refused(refusal, id.clone().filter(|_| matches!(kind, Kind::Request)));
        if matches!(kind, Kind::Request) && message["method"] == "initialize" {
            return self.initialize(&message, body, principal).map_err(refused);
        }
        self.revision(request).map_err(refused)?;
        let mut state = self.state();
        let nonce = self.session(&mut state, request, principal).map_err(refused)?;
        match kind {
            Kind::Request => self.request(&mut state, nonce, request, &message, body).map_err(refused),
            Kind::Notification => {
                self.notified(&mut state, nonce, &message);
                Ok(Answer::Whole(Reply::empty(202)))
            }
            Kind::Response => Ok(Answer::Whole(Reply::empty(202))),
        }
    }

    fn initialize(&self, message: &Value, body: &[u8], principal: &str) -> Result<Answer, Refusal> {
        let Some(asked) = message["params"]["protocolVersion"].as_str() else {
            return Ok(error(&message["id"], -32602, "params.protocolVersion is needed"));
        };
        let revision = REVISIONS.into_iter().find(|revision| *revision == asked).unwrap_or(REVISIONS[0]);
        let mut state = self.state();
        if !state.has_room() {
            return Err(Refusal::Shed);
        }
        let nonce = random();
        let id = self.keys.session_id(self.process, nonce);
        let mut session = Session::new(id.clone(), principal, revision);
        session.seen.insert(message["id"].to_string(), Seen { hash: self.keys.body(body), stream: None });
        state.sessions.insert(nonce, session);
        let result = json!({
            "protocolVersion": revision,
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": "boundary-server", "version": env!("CARGO_PKG_VERSION")},
        });
        let reply = Reply::json(200, &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        Ok(Answer::Whole(reply.with("Mcp-Session-Id", id)))
    }

    fn notified(&self, state: &mut State, nonce: u128, message: &Value) {
        let Some(session) = state.sessions.get_mut(&nonce) else { return };
        match message["method"].as_str() {
            Some("notifications/initialized") => session.confirmed = true,
            Some("notifications/cancelled") => {
                session.cancel(&message["params"]["requestId"]);
                self.said.notify_all();
            }
            _ => {}
        }
    }

    fn request(
        self: &Arc<Self>,
        state: &mut State,
        nonce: u128,
        request: &Request,
        message: &Value,
        body: &[u8],
    ) -> Result<Answer, Refusal> {
        let gone = Refusal::Expired(Reason::Unknown);
        let session = state.sessions.get_mut(&nonce).ok_or(gone)?;
        let id = &message["id"];
        let is_call = message["method"] == "tools/call";
        let hash = self.keys.body(body);
        let key = idempotency_key(request, message)?.filter(|_| is_call && !self.has(Fault::IgnoresIdempotencyKey));
        let seen = session.seen.get(&id.to_string()).map(|seen| (seen.hash, seen.stream));
        if key.is_none() && !session.marked {
            match seen {
                Some((before, _)) if before != hash => session.marked = true,
                Some((_, first)) if is_call && !self.has(Fault::RepostExecutesAgain) => {
                    let stream = first
                        .filter(|key| key.0 == session.incarnation)
                        .and_then(|key| Some((key, session.streams.get_mut(&key)?)));
                    return Ok(match stream {
                        Some((key, stream)) => self.join(nonce, key, stream),
                        None => Answer::Whole(unknown(id)),
                    });
                }
                _ => {}
            }
        }
        if seen.is_none() {
            if session.seen.len() < self.settings.seen_ids {
                session.seen.insert(id.to_string(), Seen { hash, stream: None });
            } else {
                session.marked = true;
            }
        }
        let result = match message["method"].as_str() {
            Some("ping") => json!({}),
            Some("tools/list") => tools::list(),
            Some("logging/setLevel") => json!({}),
            Some("tools/call") => return self.tool(state, nonce, message, key),
            _ => return Ok(error(id, -32601, "no such method")),
        };
        Ok(Answer::Whole(Reply::json(200, &json!({"jsonrpc": "2.0", "id": id, "result": result}))))
    }

    /// Begins a call, or repeats the answer of the one that its idempotency key names.
    fn tool(self: &Arc<Self>, state: &mut State, nonce: u128, message: &Value, key: Option<String>) -> Result<Answer, Refusal> {
        if state.calls() >= CALLS {
            return Err(Refusal::Shed);
        }
        let gone = Refusal::Expired(Reason::Unknown);
        let session = state.sessions.get(&nonce).ok_or(gone)?;
        let scope = if session.principal.is_empty() { format!("session {}", session.id) } else { session.principal.clone() };
        let record = key.map(|key| (scope, key));
        let hash = self.keys.body(without_names(message).to_string().as_bytes());
        let first = record.as_ref().and_then(|key| state.records.get(key));
        if first.is_some_and(|first| first.hash != hash) {
            return Err(Refusal::KeyReused);
        }
        let repeated = first.is_some();
        if let (Some(record), false) = (&record, repeated) {
            state.record(record.clone(), hash);
        }
        let session = state.sessions.get_mut(&nonce).ok_or(gone)?;
        let (id, tool) = (&message["id"], Tool::parse(&message["params"]));
        let (incarnation, number) = (session.incarnation, session.next);
        let stream_key = (incarnation, number);
        session.next += 1;
        let mut stream = Stream::new(Some(id.clone()));
        if let Some(seen) = session.seen.get_mut(&id.to_string()).filter(|seen| seen.stream.is_none()) {
            seen.stream = Some(stream_key);
        }
        let token = message["params"]["_meta"].get("progressToken").cloned();
        let call = |record| Call { nonce, key: stream_key, id: id.clone(), token, record };
        let answer = match tool {
            _ if repeated => return Ok(self.repeated(session, stream, call(None), record)),
            Ok(tool @ (Tool::Count(_) | Tool::Broadcast(_))) => {
                session.effects += u64::from(matches!(tool, Tool::Count(_)));
                let attachment = Attachment::new(self, nonce, stream_key, &mut stream);
                session.streams.insert(stream_key, stream);
                self.run(call(record), tool);
                return Ok(Answer::Stream(Plan {
                    attachment,
                    from: 0,
                    opening: 0,
                    cursor: None,
                    fresh: true,
                    verdict: None,
                    mute: false,
                }));
            }
            Ok(Tool::Effects) => ("result", tools::text(session.effects.to_string())),
            Err(why) => ("error", json!({"code": -32602, "message": why})),
        };
        stream.json = true;
        let mut body = json!({"jsonrpc": "2.0", "id": id});
        body[answer.0] = answer.1.clone();
        stream.answer(body.to_string());
        session.streams.insert(stream_key, stream);
        session.bury(&self.settings);
        if let Some(record) = record.and_then(|key| state.records.get_mut(&key)) {
            record.outcome = Some(answer);
        }
        Ok(Answer::Whole(Reply::json(200, &body)))
    }

    /// A stream of its own for a keyed call that was made before: it will carry the first one's answer.
    fn repeated(self: &Arc<Self>, session: &mut Session, mut stream: Stream, call: Call, first: Option<RecordKey>) -> Answer {
        let attachment = Attachment::new(self, call.nonce, call.key, &mut stream);
        session.streams.insert(call.key, stream);
        if let Some(first) = first {
            self.repeat(call, first);
        }
        Answer::Stream(Plan { attachment, from: 0, opening: 0, cursor: None, fresh: true, verdict: None, mute: false })
    }

    /// Joins a repost to the first execution's stream, from its beginning. Both connections get the rest.
    fn join(self: &Arc<Self>, nonce: u128, key: super::state::Key, stream: &mut Stream) -> Answer {
        if let Some(answer) = stream.sole_answer() {
            return Answer::Whole(Reply::text(200, answer.clone()));
        }
        if stream.ending == Ending::Cancelled || (!stream.running() && !stream.holds_result()) {
            return Answer::Whole(Reply::text(200, stream.outcome_unknown()));
        }
        let attachment = Attachment::new(self, nonce, key, stream);
        Answer::Stream(Plan { attachment, from: 0, opening: 0, cursor: None, fresh: false, verdict: None, mute: false })
    }
}

/// Tells requests, notifications and responses apart; anything else is refused.
fn kind_of(message: &Value) -> Result<Kind, Refusal> {
    if message.is_array() {
        return Err(Refusal::Invalid("batches are not of this revision"));
    }
    if message["jsonrpc"] != "2.0" {
        return Err(Refusal::Invalid("no JSON-RPC 2.0 message"));
    }
    let id_is_good =
        message.get("id").map(|id| (id.is_string() || id.is_i64() || id.is_u64()) && id.to_string().len() <= NAME_LIMIT);
    let answers = usize::from(message.get("result").is_some()) + usize::from(message.get("error").is_some());
    match (message.get("method").map(Value::is_string), id_is_good, answers) {
        (Some(true), Some(true), 0) => Ok(Kind::Request),
        (Some(true), None, 0) => Ok(Kind::Notification),
        (None, Some(true), 1) => Ok(Kind::Response),
        _ => Err(Refusal::Invalid("neither a request, nor a notification, nor a response")),
    }
}

/// The idempotency key of a request, from its field or from its body.
fn idempotency_key(request: &Request, message: &Value) -> Result<Option<String>, Refusal> {
    let meta = message["params"]["_meta"].get("rejoin/idempotency-key");
    let key = match (request.all("Idempotency-Key").as_slice(), meta.map(Value::as_str)) {
        ([], None) => return Ok(None),
        ([key], None) => *key,
        ([], Some(Some(key))) => key,
        ([field], Some(Some(key))) if *field == key => key,
        _ => return Err(Refusal::Invalid("one idempotency key, a string, is allowed")),
    };
    if key.is_empty() || key.len() > NAME_LIMIT {
        return Err(Refusal::Invalid("an idempotency key of this length is not allowed"));
    }
    Ok(Some(key.to_owned()))
}

/// A message without what may differ between two requests that are the same call.
fn without_names(message: &Value) -> Value {
    let mut message = message.clone();
    if let Some(object) = message.as_object_mut() {
        object.remove("id");
    }
    if let Some(params) = message.get_mut("params").and_then(Value::as_object_mut) {
        params.remove("_meta");
    }
    message
}

fn error(id: &Value, code: i64, message: &str) -> Answer {
    Answer::Whole(Reply::json(200, &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})))
}

fn unknown(id: &Value) -> Reply {
    Reply::json(200, &json!({"jsonrpc": "2.0", "id": id, "error": outcome_unknown()}))
}
