//! The public servers, each as the command that a user would give.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rejoin_tests::sdk::{Sdk, installed};
use serde_json::{Value, json};

/// The JavaScript one of this name.
fn node(name: &str) -> String {
    let script = installed("servers/node/node_modules/.bin").join(name);
    format!("node {}", script.display())
}

/// The Python one of this name.
fn python(name: &str) -> String {
    installed("../target/servers/python/bin").join(name).display().to_string()
}

/// `@modelcontextprotocol/server-everything`, the reference server of every feature.
pub(crate) fn everything() -> String {
    node("mcp-server-everything")
}

/// `@modelcontextprotocol/server-filesystem`, for a folder; it asks its client for roots.
pub(crate) fn filesystem(folder: &Path) -> String {
    format!("{} {}", node("mcp-server-filesystem"), folder.display())
}

/// `mcp-server-time`.
pub(crate) fn time() -> String {
    python("mcp-server-time")
}

/// `mcp-server-git`.
pub(crate) fn git() -> String {
    python("mcp-server-git")
}

/// `mcp-server-fetch`, made slow to start.
pub(crate) fn slow_fetch() -> String {
    format!("sleep 4; exec {} --allow-private-ips --ignore-robots-txt", python("mcp-server-fetch"))
}

/// A server's options for a command of a shell. Its processes may take their time to start: so many at once, on a busy machine.
pub(crate) fn serving<'a>(options: &[&'a str], command: &'a str) -> Vec<&'a str> {
    options.iter().copied().chain(["--child-start-timeout", "2m", "--", "sh", "-c", command]).collect()
}

/// Both clients, driven by the script of their language.
pub(crate) fn clients() -> [Sdk; 2] {
    [Sdk::typescript("script"), Sdk::python("script")]
}

/// What a client is to do in one session.
pub(crate) fn session(url: &str, roots: &[&str], steps: &[Value]) -> Value {
    json!({"url": url, "roots": roots, "steps": steps})
}

/// A step: a tool's call.
pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({"do": "call", "tool": tool, "arguments": arguments})
}

/// A step: a tool's call that asks for its progress.
pub(crate) fn call_with_progress(tool: &str, arguments: Value) -> Value {
    json!({"do": "call", "tool": tool, "arguments": arguments, "progress": true})
}

/// A step: a tool is called until its text says this.
pub(crate) fn call_until(tool: &str, says: &str) -> Value {
    json!({"do": "call", "tool": tool, "arguments": {}, "says": says})
}

/// A step: so many of what comes by itself have come.
pub(crate) fn until(what: &str, count: usize) -> Value {
    json!({"do": "until", "what": what, "count": count})
}

/// A folder of one test's own, gone with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rejoin-real-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new folder");
        Self(path.canonicalize().expect("it is there"))
    }

    /// A git repository with a staged file.
    pub(crate) fn repository() -> Self {
        let folder = Self::new();
        folder.write("staged", "content");
        folder.git(&["init", "--quiet"]);
        folder.git(&["config", "user.name", "rejoin"]);
        folder.git(&["config", "user.email", "rejoin@localhost"]);
        folder.git(&["add", "staged"]);
        folder
    }

    /// What git says in it.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git").arg("-C").arg(&self.0).args(arguments).output().expect("git runs");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("read")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed may have left anything; the folder is a temporary one.
        let _ = fs::remove_dir_all(&self.0);
    }
}
