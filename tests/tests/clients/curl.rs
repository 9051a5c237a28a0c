//! `curl`, and what a person or a script does with it: after a cut, the same URL again with the last id that was read.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rejoin_tests::session::{NOVEMBER, call_with_token, initialize, notification};
use rejoin_tests::sse::{Block, Blocks};
use serde_json::{Value, json};

use crate::bed::{Bed, TIMEOUT_MS};

/// How long the person waits: no less than `retry` says.
const AWAY: Duration = Duration::from_millis(240);

/// Times that the person tries to come back.
const TRIES: usize = 3;

/// One run of the command.
struct Run {
    exit: i32,
    status: u16,
    head: String,
    body: String,
}

impl Run {
    fn field(&self, name: &str) -> Option<String> {
        let values = self.head.lines().filter_map(|line| line.split_once(": "));
        values.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim_end().to_owned()).next_back()
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Blocks::default();
        self.body.bytes().filter_map(|byte| blocks.push(byte)).collect()
    }
}

/// Plays every bed's session at once; gives what each saw.
pub(crate) fn play(beds: &[Bed]) -> Vec<Value> {
    thread::scope(|threads| {
        let sessions: Vec<_> = beds.iter().map(|bed| threads.spawn(|| drive(bed))).collect();
        sessions.into_iter().map(|session| session.join().expect("no session panics")).collect()
    })
}

fn curl(folder: &Path, url: &str, fields: &[String], body: Option<&Value>) -> Run {
    let (head, out) = (folder.join("head"), folder.join("body"));
    let mut command = Command::new("curl");
    command.args(["--silent", "--no-buffer", "--max-time", &(TIMEOUT_MS / 1_000).to_string(), "--write-out", "%{http_code}"]);
    command.arg("--dump-header").arg(&head).arg("--output").arg(&out);
    for field in fields {
        command.args(["--header", field]);
    }
    if let Some(body) = body {
        command.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
    }
    for stale in [&head, &out] {
        // There is none before the first run.
        let _ = fs::remove_file(stale);
    }
    let output = command.arg(url).output().expect("curl is installed");
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let status = String::from_utf8_lossy(&output.stdout).parse().expect("a status code");
    Run { exit: output.status.code().expect("no signal"), status, head: text(&head), body: text(&out) }
}

fn drive(bed: &Bed) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let url = bed.front.url();
    let accept = "Accept: application/json, text/event-stream".to_owned();
    let begun = curl(folder.path(), &url, std::slice::from_ref(&accept), Some(&initialize(0, NOVEMBER)));
    let id = begun.field("Mcp-Session-Id").unwrap_or_else(|| panic!("no session in {}", begun.head));
    let fields = vec![accept, format!("Mcp-Session-Id: {id}"), format!("MCP-Protocol-Version: {NOVEMBER}")];
    let confirmed = notification("notifications/initialized", json!({}));
    assert_eq!(curl(folder.path(), &url, &fields, Some(&confirmed)).status, 202);
    let calls = bed.calls().into_iter().zip(1..).map(|(arguments, id)| {
        let message = call_with_token(id, format!("token-{id}"), "ticker", arguments);
        read_to_the_end(curl(folder.path(), &url, &fields, Some(&message)), |cursor| {
            let fields = [fields.as_slice(), &[format!("Last-Event-ID: {cursor}")]].concat();
            curl(folder.path(), &url, &fields, None)
        })
    });
    json!({"revision": NOVEMBER, "calls": calls.collect::<Vec<_>>()})
}

/// Reads a call's stream, and comes back to it until it has the answer or is told that there is none.
fn read_to_the_end(first: Run, back: impl Fn(&str) -> Run) -> Value {
    let (mut run, mut ticks, mut exits) = (first, Vec::new(), Vec::new());
    let mut cursor = None;
    loop {
        let blocks = if run.status == 200 { run.blocks() } else { Vec::new() };
        let messages: Vec<Value> = blocks.iter().filter(|block| block.is_message()).map(Block::json).collect();
        ticks.extend(messages.iter().filter_map(|message| message["params"]["progress"].as_f64()));
        cursor = blocks.iter().rev().find_map(|block| block.id.clone()).or(cursor);
        exits.push(run.exit);
        let gap = blocks.iter().any(Block::is_resync);
        if let Some(answer) = messages.iter().find(|message| message.get("method").is_none()) {
            let code = &answer["error"]["code"];
            return json!({"ticks": ticks, "result": answer.get("result"), "code": code, "error": answer.get("error"), "exits": exits, "gap": gap});
        }
        let given_up = exits.len() > TRIES;
        match &cursor {
            Some(cursor) if run.status == 200 && !given_up => {
                thread::sleep(AWAY);
                run = back(cursor);
            }
            _ => {
                return json!({"ticks": ticks, "error": "no answer", "code": null, "status": run.status, "exits": exits, "gap": gap});
            }
        }
    }
}
