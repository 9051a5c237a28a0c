//! The unmodified SDK clients as processes: what each session is to do goes in as a line, what it saw comes out as one.
//!
//! Never judges what a client saw. `scripts/test` installs the clients, and the public servers that they call; without them a test fails
//! and says so.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::proxy::{Asked, Record};

/// How long a client may take for all its sessions, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// The shortest wait that a client may take `--retry 200ms` for: it is spread by ±20 %, and clocks differ.
const LEAST_RETRY: Duration = Duration::from_millis(150);

/// A client and the script that drives it.
#[derive(Clone, Debug)]
pub struct Sdk {
    /// What it is called in failures.
    pub name: &'static str,
    program: PathBuf,
    script: PathBuf,
    argument: Option<&'static str>,
}

/// A path in this package, which must be there.
pub fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(path.exists(), "{} is missing: scripts/test installs what is not ours", path.display());
    path
}

impl Sdk {
    /// The TypeScript client, driven by a script of `clients/typescript`.
    pub fn typescript(script: &str) -> Self {
        installed("clients/typescript/node_modules/@modelcontextprotocol/sdk");
        let script = installed(&format!("clients/typescript/{script}.mjs"));
        Self { name: "typescript", program: "node".into(), script, argument: None }
    }

    /// The Python client, driven by a script of `clients/python`.
    pub fn python(script: &str) -> Self {
        let program = installed("../target/clients/python/bin/python");
        Self { name: "python", program, script: installed(&format!("clients/python/{script}.py")), argument: None }
    }

    /// The same, its script told this.
    pub fn told(self, argument: &'static str) -> Self {
        Self { argument: Some(argument), ..self }
    }

    /// Runs the client for all these sessions at once; gives what it saw, by URL.
    pub fn drive(&self, sessions: &[Value]) -> BTreeMap<String, Value> {
        let mut child = Command::new(&self.program)
            .arg(&self.script)
            .args(self.argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let mut stdin = child.stdin.take().expect("piped");
        for session in sessions {
            writeln!(stdin, "{session}").expect("the client reads its sessions");
        }
        drop(stdin);
        let mut stdout = child.stdout.take().expect("piped");
        let (says, said) = mpsc::channel();
        thread::spawn(move || {
            let mut text = String::new();
            let read = stdout.read_to_string(&mut text);
            // The test may have given up already.
            let _ = says.send(read.map(|_| text));
        });
        let text = said.recv_timeout(PATIENCE);
        // It has ended, or it never will.
        let _ = child.kill();
        let _ = child.wait();
        let text = text.unwrap_or_else(|_| panic!("{} did not end in time", self.name)).expect("text");
        let seen = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")));
        seen.map(|seen: Value| (seen["url"].as_str().expect("a URL").to_owned(), seen)).collect()
    }
}

/// Asserts that each cut happened, that the client came back for each with the id that it had been sent last and no sooner than it was
/// told, and that it POSTed its `tools/call` once.
#[track_caller]
pub fn cuts_and_returns(label: &str, record: &Record, cuts: usize) {
    let calls = record.asked.iter().filter(|asked| asked.calls("tools/call")).count();
    assert_eq!(calls, 1, "{label}: the call was POSTed {calls} times");
    returns(label, record, cuts);
}

/// The same without a word on how often anything was POSTed.
#[track_caller]
pub fn returns(label: &str, record: &Record, cuts: usize) {
    assert_eq!(record.cuts.len(), cuts, "{label}: every cut must happen");
    let returns: Vec<&Asked> = record.asked.iter().filter(|asked| asked.cursor().is_some()).collect();
    let cursors: Vec<_> = returns.iter().map(|back| back.cursor()).collect();
    assert_eq!(returns.len(), cuts, "{label}: one return a cut: {cursors:?}");
    for (cut, back) in record.cuts.iter().zip(returns) {
        assert_eq!(back.head.method(), "GET", "{label}");
        assert_eq!(back.cursor(), cut.cursor.as_deref(), "{label}: Last-Event-ID must be the last id sent");
        let away = back.at.saturating_duration_since(cut.at);
        assert!(away >= LEAST_RETRY, "{label}: `retry` was not honoured, back after {away:?}");
    }
}
