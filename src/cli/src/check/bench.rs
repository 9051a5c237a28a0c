//! What a case works with: requests to the target, sessions, calls, and the place for what it finds.
//!
//! Never decides whether a case passed: that is made of its findings.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::fit::Wish;
use super::request::Request;
use super::sentences::Sentence;
use super::server::{Effects, Fit, Known};
use super::session::{Call, Got, Running, Session, read_out};
use super::stream::Step;
use super::verdict::{Cost, Finding, Kind};
use super::wire::{Io, Reply, Trouble};

/// The newest revision with sessions.
pub(crate) const NEWEST: &str = "2025-11-25";

/// What the user says of the target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// A shell command that restarts it.
    pub(crate) restart: Option<String>,
    /// A session that is idle so long has expired.
    pub(crate) expire_after: Option<Duration>,
    /// Events of one call that are more than it holds.
    pub(crate) overflow: u32,
    /// Whether it was given a token.
    pub(crate) token: bool,
    /// The token of another principal.
    pub(crate) other_token: Option<String>,
}

/// The bench of a run.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The target's connections.
    pub(crate) io: Rc<Io>,
    /// What the user says.
    pub(crate) settings: Settings,
    /// What is known of the target.
    pub(crate) known: Known,
    findings: RefCell<Vec<Finding>>,
    names: Cell<u64>,
    nonce: String,
}

impl Bench {
    /// A bench of which nothing is known yet.
    pub(crate) fn new(io: Rc<Io>, settings: Settings) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nonce = format!("{:x}{:x}", now.as_micros(), std::process::id());
        Self { io, settings, known: Known::default(), findings: RefCell::default(), names: Cell::new(0), nonce }
    }

    // ---- findings -----------------------------------------------------------------------------------------------------------------

    /// What was found since this was asked last.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        self.findings.take()
    }

    fn found(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        // One of a kind is enough: the transcript has the rest.
        if !findings.iter().any(|other| (other.kind, other.cost, other.mcp) == (finding.kind, finding.cost, finding.mcp)) {
            findings.push(finding);
        }
    }

    /// A row of the boundary page is not kept.
    pub(crate) fn breaks(&self, cost: Cost, boundary: &'static str, text: impl Into<String>) {
        self.found(Finding {
            kind: Kind::BreaksContinuity,
            text: text.into(),
            cost: Some(cost),
            boundary: Some(boundary),
            mcp: None,
        });
    }

    /// A sentence of the specification is not kept.
    pub(crate) fn violates(&self, mcp: &'static Sentence, text: impl Into<String>) {
        self.found(Finding { kind: Kind::ViolatesMcp, text: text.into(), cost: None, boundary: None, mcp: Some(mcp) });
    }

    /// It works, and a client could be told more.
    pub(crate) fn unclear(&self, boundary: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.findings.borrow_mut().push(Finding { kind: Kind::Unclear, text, cost: None, boundary: Some(boundary), mcp: None });
    }

    // ---- requests -----------------------------------------------------------------------------------------------------------------

    /// A name that nothing else of this run or another has.
    pub(crate) fn name(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("{}-{}", self.nonce, self.names.get())
    }

    /// A request with nothing but what every request to the target has.
    pub(crate) fn bare(&self, method: &'static str) -> Request {
        let config = &self.io.target.config;
        let given: Vec<_> = config.fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Request::new(method, &config.path, &config.authority, &given)
    }

    /// A request of a session.
    pub(crate) fn of(&self, session: &Session, request: Request) -> Request {
        let request = request.with("MCP-Protocol-Version", &session.revision);
        match &session.id {
            Some(id) => request.with("Mcp-Session-Id", id),
            None => request,
        }
    }

    /// A POST without a session.
    pub(crate) fn post_bare(&self, body: &str) -> Request {
        self.bare("POST")
            .with("Accept", "application/json, text/event-stream")
            .with("Content-Type", "application/json")
            .body(body)
    }

    /// A POST of a message.
    pub(crate) fn post(&self, session: &Session, message: &Value) -> Request {
        self.of(session, self.post_bare(&message.to_string()))
    }

    /// A GET without a cursor.
    pub(crate) fn get(&self, session: &Session) -> Request {
        self.of(session, self.bare("GET").with("Accept", "text/event-stream"))
    }

    /// A GET with a cursor.
    pub(crate) fn get_after(&self, session: &Session, cursor: &str) -> Request {
        self.get(session).with("Last-Event-ID", cursor)
    }

    /// Asks on a connection of its own.
    pub(crate) fn ask(&self, request: &Request) -> Result<Reply, Trouble> {
        self.io.ask(request)
    }

    /// Comes back with a cursor.
    pub(crate) fn resume(&self, session: &Session, cursor: &str) -> Result<Reply, Trouble> {
        self.ask(&self.get_after(session, cursor))
    }

    // ---- sessions -----------------------------------------------------------------------------------------------------------------

    /// Begins a session of the newest revision that the server has.
    pub(crate) fn session(&self) -> Result<Session, Trouble> {
        self.session_by(NEWEST, |request| request)
    }

    /// Begins a session with an `initialize` request of this kind.
    pub(crate) fn session_by(&self, revision: &str, change: impl Fn(Request) -> Request) -> Result<Session, Trouble> {
        let client = json!({ "name": "rejoin-check", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client });
        let initialize = json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params });
        let reply = self.ask(&change(self.post_bare(&initialize.to_string())))?;
        let cannot = |words: String| Trouble::Cannot(format!("`initialize` was answered {words}"));
        if reply.status() != 200 {
            return Err(cannot(reply.words()));
        }
        let id = reply.head().single("mcp-session-id").map_err(|_| cannot("with several session ids".to_owned()))?;
        let id = id.map(|id| String::from_utf8_lossy(id).into_owned());
        let words = reply.words();
        let answer = self.answer(reply, &json!("init"))?;
        let revision = answer["result"]["protocolVersion"].as_str().ok_or_else(|| cannot(words))?.to_owned();
        let session = Session { id, revision, server: answer["result"].clone() };
        let confirmed =
            self.ask(&change(self.post(&session, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))))?;
        if !(200..300).contains(&confirmed.status()) {
            return Err(Trouble::Cannot(format!("`notifications/initialized` was answered {}", confirmed.words())));
        }
        Ok(session)
    }

    /// The answer to a request, wherever it comes.
    pub(crate) fn answer(&self, reply: Reply, id: &Value) -> Result<Value, Trouble> {
        match reply {
            Reply::Whole(answer) => Ok(answer.json()),
            Reply::Stream(mut stream) => loop {
                match stream.next(stream.due())? {
                    Step::Event(event) => {
                        let message = event.message().unwrap_or_default();
                        if message.get("method").is_none() && message.get("id") == Some(id) {
                            return Ok(message);
                        }
                    }
                    Step::Over(ending) => {
                        return Err(Trouble::NoAnswer(format!("a request: its stream {} without one", ending.words())));
                    }
                }
            },
        }
    }

    /// Asks for something, and gives its result.
    pub(crate) fn result(&self, session: &Session, method: &str, params: Value) -> Result<Value, Trouble> {
        let id = json!(self.next_id());
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let reply = self.ask(&self.post(session, &message))?;
        let words = reply.words();
        let answer = self.answer(reply, &id)?;
        answer.get("result").cloned().ok_or_else(|| Trouble::Cannot(format!("`{method}` was answered {words}")))
    }

    /// Calls a tool, and gives the text of its result.
    pub(crate) fn text_of(&self, session: &Session, tool: &str, arguments: Value) -> Result<String, Trouble> {
        let result = self.result(session, "tools/call", json!({ "name": tool, "arguments": arguments }))?;
        Ok(result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
    }

    /// A JSON-RPC id that was not used.
    pub(crate) fn next_id(&self) -> u64 {
        self.names.set(self.names.get() + 1);
        self.names.get()
    }

    // ---- calls --------------------------------------------------------------------------------------------------------------------

    fn fit(&self) -> Result<&Fit, Trouble> {
        self.known.fit.as_ref().map_err(|why| Trouble::Cannot(why.clone()))
    }

    /// A call of so many events at this pace, where the tool can be told; else of as many as it has.
    pub(crate) fn call(&self, events: u32, every_ms: u64) -> Result<Call, Trouble> {
        self.padded_call(events, every_ms, 0)
    }

    /// The same with so many bytes more in each event, where the tool can.
    pub(crate) fn padded_call(&self, events: u32, every_ms: u64, payload: usize) -> Result<Call, Trouble> {
        let fit = self.fit()?;
        let (id, token, key) = (json!(self.next_id()), self.name(), self.name());
        let wish = Wish { events, every: Duration::from_millis(every_ms), payload, key: &key };
        Ok(fit.call(id, token, &wish))
    }

    /// POSTs a call, whose answer must be a stream.
    pub(crate) fn start(&self, session: &Session, call: Call) -> Result<Running, Trouble> {
        match self.ask(&self.post(session, &call.message))? {
            Reply::Stream(stream) => Ok(Running { call, stream: *stream, events: Vec::new() }),
            whole @ Reply::Whole(_) => Err(Trouble::Cannot(format!("a call was answered {}, and no stream", whole.words()))),
        }
    }

    /// Makes a call and reads its stream to the end.
    pub(crate) fn finish(&self, session: &Session, call: Call) -> Result<(Call, Got), Trouble> {
        let mut running = self.start(session, call)?;
        let got = read_out(&mut running.stream, &running.call, self.io.patience)?;
        Ok((running.call, got))
    }

    /// Reads a stream of a call to its end.
    pub(crate) fn read(&self, reply: Reply, call: &Call) -> Result<Result<Got, Reply>, Trouble> {
        match reply {
            Reply::Stream(mut stream) => read_out(&mut stream, call, self.io.patience).map(Ok),
            whole @ Reply::Whole(_) => Ok(Err(whole)),
        }
    }

    /// Waits until a call that nobody listens to is over.
    pub(crate) fn wait_out(&self, call: &Call) -> Result<(), Trouble> {
        self.io.pause(call.takes.mul_f64(1.5) + Duration::from_millis(400))
    }

    // ---- effects ------------------------------------------------------------------------------------------------------------------

    /// What the server has counted before a call, to be subtracted. Asked in the call's own session: some count for each.
    pub(crate) fn counted(&self, session: &Session) -> Result<u64, Trouble> {
        match &self.known.effects {
            // The key is a call's own.
            Effects::ByKey | Effects::Unseen(_) => Ok(0),
            Effects::Counter(tool) => self.counter(session, tool),
        }
    }

    /// How often this call was executed, if the server can say.
    pub(crate) fn executions(&self, session: &Session, call: &Call, before: u64) -> Result<Option<u64>, Trouble> {
        match &self.known.effects {
            Effects::Unseen(_) => Ok(None),
            Effects::ByKey => {
                let session = self.session()?;
                let fit = self.fit()?;
                let wish = Wish { events: 0, every: Duration::ZERO, payload: 0, key: &call.key };
                let text = self.text_of(&session, &fit.name, fit.template.fill(&wish))?;
                let said: Value = serde_json::from_str(&text).unwrap_or_default();
                // To ask is an execution too.
                let all = said["executions"].as_u64().and_then(|all| all.checked_sub(1));
                all.map(Some).ok_or_else(|| no_number(&text))
            }
            Effects::Counter(tool) => Ok(Some(self.counter(session, tool)?.saturating_sub(before))),
        }
    }

    fn counter(&self, session: &Session, tool: &str) -> Result<u64, Trouble> {
        let text = self.text_of(session, tool, json!({}))?;
        let digits: String = text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        digits.parse().map_err(|_| no_number(&text))
    }
}

fn no_number(text: &str) -> Trouble {
    Trouble::Cannot(format!("the tool that counts executions said {text:?}, which has no number"))
}
