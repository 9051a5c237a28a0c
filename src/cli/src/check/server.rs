//! What is known of the target before the cases: its handshake, its tools, the one that is called, and what cannot be tested and why.
//!
//! Never blames the target for anything: that is the cases'.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::bench::Bench;
use super::fit::{Candidate, Template, Wish, candidates};
use super::session::{Call, ERROR, LINGER, Mark, RESULT, last_id, read_out};
use super::stream::Ending;
use super::wire::{Reply, Trouble};

/// What is known of the target.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its name and version.
    pub(crate) name: String,
    /// The revision that it negotiates.
    pub(crate) revision: String,
    /// Whether it gives session ids.
    pub(crate) sessions: bool,
    /// Whether it answers a GET with a stream.
    pub(crate) listens: bool,
    /// Whether its events have ids.
    pub(crate) ids: bool,
    /// The tool that is called, or why there is none.
    pub(crate) fit: Result<Fit, String>,
    /// What shows executions.
    pub(crate) effects: Effects,
    /// The names of its tools.
    pub(crate) tools: Vec<String>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            name: String::new(),
            revision: String::new(),
            sessions: false,
            listens: false,
            ids: false,
            fit: Err("the tools were not looked at".to_owned()),
            effects: Effects::Unseen(String::new()),
            tools: Vec::new(),
        }
    }
}

/// What shows how often a call was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effects {
    /// The called tool's own result, for a key.
    ByKey,
    /// The number in the text of another tool's result.
    Counter(String),
    /// Nothing; why.
    Unseen(String),
}

/// The tool that is called.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    /// Its name.
    pub(crate) name: String,
    /// Its arguments.
    pub(crate) template: Template,
    /// What its messages are known by where nothing can be asked of it.
    learned: Vec<String>,
    /// How long it takes then.
    takes: Duration,
    /// Whether its events are known by their progress.
    by_progress: bool,
}

/// What a fixed tool would be asked, and what a fitting one is tried with.
const TRIAL: (u32, Duration) = (3, Duration::from_millis(30));

impl Fit {
    /// Whether a case can say how many events come, and how fast.
    pub(crate) fn is_adjustable(&self) -> bool {
        self.template.is_adjustable()
    }

    /// A call of it.
    pub(crate) fn call(&self, id: Value, token: String, wish: &Wish<'_>) -> Call {
        let arguments = self.template.fill(wish);
        let params = json!({ "name": self.name, "arguments": arguments, "_meta": { "progressToken": token } });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let (expected, takes) = if self.is_adjustable() {
            let numbers = (1..=wish.events).map(|number| number.to_string());
            (numbers.chain([RESULT.to_owned()]).collect(), wish.every * wish.events)
        } else {
            (self.learned.clone(), self.takes)
        };
        Call { id, token, key: wish.key.to_owned(), message, expected, takes, by_progress: self.by_progress }
    }

    fn trial(name: &str, template: Template, by_progress: bool) -> Self {
        Self { name: name.to_owned(), template, learned: Vec::new(), takes: Duration::from_secs(5), by_progress }
    }
}

/// What the user says of tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    /// The tool to call.
    pub(crate) tool: Option<String>,
    /// Its arguments.
    pub(crate) arguments: Option<Map<String, Value>>,
    /// The tool that counts executions.
    pub(crate) effects: Option<String>,
}

/// Learns of the target; the error is why nothing can be tested, in a line.
pub(crate) fn learn(bench: &mut Bench, tools: &Tools) -> Result<(), String> {
    let session = bench.session().map_err(|trouble| no_session(bench, &trouble))?;
    let info = &session.server["serverInfo"];
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    bench.known.name = format!("{} {}", text(&info["name"]), text(&info["version"]));
    bench.known.revision.clone_from(&session.revision);
    bench.known.sessions = session.id.is_some();
    let listed = match list(bench) {
        Ok(listed) => listed,
        // Its user knows which to call.
        Err(_) if tools.tool.is_some() => Vec::new(),
        Err(trouble) => return Err(format!("its tools cannot be listed: {trouble}")),
    };
    bench.known.tools = listed.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
    match bench.ask(&bench.get(&session)) {
        Ok(reply) => bench.known.listens = matches!(reply, Reply::Stream(_)),
        Err(Trouble::Unreachable(why)) => return Err(format!("it was there, and is gone: {why}")),
        Err(_) => {}
    }
    bench.known.fit = choose(bench, tools, &listed)?;
    bench.known.effects = effects(bench, tools);
    Ok(())
}

/// Why there is no session, in a line that says what to do.
fn no_session(bench: &Bench, trouble: &Trouble) -> String {
    let url = &bench.io.target.url;
    match trouble {
        Trouble::Cannot(why)
            if why.starts_with("`initialize` was answered 401") || why.starts_with("`initialize` was answered 403") =>
        {
            format!("{url} wants to know who calls: give --token or --header ({why})")
        }
        Trouble::Cannot(why) => format!("{url} does not speak MCP's Streamable HTTP: {why}"),
        Trouble::Unreachable(why) => format!("{url} cannot be reached: {why}"),
        other => format!("{url} does not speak MCP's Streamable HTTP: {other}"),
    }
}

/// Pages of tools that are read. Reason: a server may go on for ever.
const PAGES: usize = 10;

fn list(bench: &Bench) -> Result<Vec<Value>, Trouble> {
    let session = bench.session()?;
    if session.server["capabilities"].get("tools").is_none() {
        return Ok(Vec::new());
    }
    let (mut tools, mut params) = (Vec::new(), json!({}));
    for _ in 0..PAGES {
        let page = bench.result(&session, "tools/list", params)?;
        tools.extend(page["tools"].as_array().cloned().unwrap_or_default());
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        params = json!({ "cursor": cursor });
    }
    Ok(tools)
}

/// The tool to call: the given one, or the first that fits. The inner error is why there is none.
fn choose(bench: &mut Bench, tools: &Tools, listed: &[Value]) -> Result<Result<Fit, String>, String> {
    if let Some(name) = &tools.tool {
        if !listed.is_empty() && !bench.known.tools.contains(name) {
            return Err(format!("it has no tool {name:?}; it has {}", bench.known.tools.join(", ")));
        }
        let known = candidates(listed).into_iter().find(|candidate| candidate.name == *name).map(|candidate| candidate.template);
        let template = tools.arguments.clone().map(Template).or(known).unwrap_or(Template(Map::new()));
        let fit = try_tool(bench, &Candidate { name: name.clone(), template });
        return fit.map(Ok).map_err(|why| format!("the tool {name:?} does not fit: {why}"));
    }
    let mut why = "it has no tools".to_owned();
    for candidate in candidates(listed) {
        match try_tool(bench, &candidate) {
            Ok(fit) => return Ok(Ok(fit)),
            Err(reason) => {
                why = format!(
                    "no tool was found that emits several events (the last tried, {}: {reason}); say which with --tool and --args",
                    candidate.name
                )
            }
        }
    }
    if !listed.is_empty() && why == "it has no tools" {
        why = "every tool wants arguments that cannot be guessed; say which to call with --tool and --args".to_owned();
    }
    Ok(Err(why))
}

/// Tries a tool: its events must be several, and the same each time.
fn try_tool(bench: &mut Bench, candidate: &Candidate) -> Result<Fit, String> {
    let first = run(bench, &Fit::trial(&candidate.name, candidate.template.clone(), true))?;
    let Some(marks) = first.progress else {
        // No progress: its other notifications must do.
        return fixed(bench, candidate, &first.notifications, first.took, false);
    };
    let numbered: Vec<_> = (1..=TRIAL.0).map(|number| number.to_string()).chain([RESULT.to_owned()]).collect();
    if candidate.template.is_adjustable() && marks == numbered {
        return Ok(Fit::trial(&candidate.name, candidate.template.clone(), true));
    }
    fixed(bench, candidate, &marks, first.took, true)
}

/// A tool that does as it pleases: twice the same, or it cannot be judged.
fn fixed(bench: &mut Bench, candidate: &Candidate, marks: &[String], took: Duration, by_progress: bool) -> Result<Fit, String> {
    if marks.len() < 3 {
        return Err(format!("it emitted {} events before its answer", marks.len().saturating_sub(1)));
    }
    let key = bench.name();
    let wish = Wish { events: 6, every: Duration::from_millis(50), payload: 0, key: &key };
    let Value::Object(arguments) = candidate.template.fill(&wish) else { return Err("its arguments are no object".to_owned()) };
    let adjustable = candidate.template.is_adjustable();
    let mut fit = Fit::trial(&candidate.name, Template(arguments), by_progress);
    let again = run(bench, &fit)?;
    let seen = if by_progress { again.progress.unwrap_or_default() } else { again.notifications };
    if !adjustable && seen != marks {
        return Err("its events differ from one call to the next".to_owned());
    }
    (fit.learned, fit.takes) = (seen, took.max(again.took));
    Ok(fit)
}

/// What one call of a tool came to.
struct Ran {
    /// Marks by progress, where there was any.
    progress: Option<Vec<String>>,
    /// Marks by all notifications.
    notifications: Vec<String>,
    took: Duration,
}

fn run(bench: &mut Bench, fit: &Fit) -> Result<Ran, String> {
    let told = |trouble: Trouble| trouble.to_string();
    let session = bench.session().map_err(told)?;
    let key = bench.name();
    let wish = Wish { events: TRIAL.0, every: TRIAL.1, payload: 0, key: &key };
    let mut call = fit.call(json!(bench.next_id()), bench.name(), &wish);
    let began = Instant::now();
    let mut stream = match bench.ask(&bench.post(&session, &call.message)).map_err(told)? {
        Reply::Stream(stream) => stream,
        whole @ Reply::Whole(_) => return Err(format!("it was answered {}, and no stream", whole.words())),
    };
    let got = read_out(&mut stream, &call, bench.io.patience).map_err(told)?;
    let took = began.elapsed();
    if call.answer(&got.events).is_none() {
        return Err(format!("its stream {} without an answer", got.ending.words()));
    }
    let took = if got.ending == Ending::Open { took.saturating_sub(LINGER) } else { took };
    bench.known.ids |= last_id(&got.events).is_some();
    let is_answer_only = |marks: &[String]| marks.len() < 2;
    call.by_progress = true;
    let progress = call.marks(&got.events);
    call.by_progress = false;
    let notifications = call.marks(&got.events);
    if got.events.iter().any(|event| matches!(call.mark(event), Mark::Own(mark) if mark == ERROR)) {
        return Err("it was answered with an error".to_owned());
    }
    Ok(Ran { progress: (!is_answer_only(&progress)).then_some(progress), notifications, took })
}

/// Names of tools that count executions of another.
const COUNTERS: [&str; 3] = ["effects", "executions", "side_effects"];

fn effects(bench: &Bench, tools: &Tools) -> Effects {
    let counter =
        tools.effects.as_deref().or_else(|| COUNTERS.into_iter().find(|name| bench.known.tools.iter().any(|tool| tool == name)));
    if let Some(name) = counter {
        return Effects::Counter(name.to_owned());
    }
    match &bench.known.fit {
        Ok(fit) if fit.template.0.values().any(|value| value == "$key") => Effects::ByKey,
        _ => Effects::Unseen("no tool of the server shows how often a call was executed (--effects-tool)".to_owned()),
    }
}
