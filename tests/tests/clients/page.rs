//! `docs/clients.md`, written by what the clients did.
//!
//! `UPDATE_CLIENTS=1` rewrites it and **fails** if that changed anything, so that somebody reads the difference.

use std::fmt::Write as _;
use std::fs;

use rejoin_tests::nginx::SETTINGS;
use rejoin_tests::sdk::installed;
use serde_json::Value;

use crate::bed::{STATELESS, Scenario, Way};
use crate::client::Client;
use crate::words::made_of;

/// What stands above the tables.
const ABOVE: &str = include_str!("clients.md");

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::TypeScript1 => "TypeScript SDK 1",
            Self::TypeScript2 => "TypeScript SDK 2",
            Self::Python => "Python SDK",
            Self::FastMcp => "FastMCP",
            Self::Rmcp => "Rust SDK",
            Self::Curl => "`curl`, by hand",
            Self::EventSource => "a browser's `EventSource`",
        }
    }

    /// What is installed, and its version as a lock file has it, where one has.
    fn package(self) -> String {
        let npm = |name: &str| {
            let lock = fs::read_to_string(installed("clients/typescript/package-lock.json")).expect("a lock file");
            let lock: Value = serde_json::from_str(&lock).expect("JSON");
            let version = lock["packages"][format!("node_modules/{name}")]["version"].as_str().expect("a version");
            format!("npm `{name}` {version}")
        };
        let pip = |name: &str| {
            let lock = fs::read_to_string(installed("clients/python/requirements.txt")).expect("a lock file");
            let version = lock.lines().find_map(|line| line.strip_prefix(&format!("{name}=="))).expect("a version");
            format!("PyPI `{name}` {}", version.trim_end_matches([' ', '\\']))
        };
        match self {
            Self::TypeScript1 => npm("@modelcontextprotocol/sdk"),
            Self::TypeScript2 => npm("@modelcontextprotocol/client"),
            Self::Python => pip("mcp"),
            Self::FastMcp => pip("fastmcp"),
            Self::Rmcp => {
                let lock = fs::read_to_string(installed("../Cargo.lock")).expect("a lock file");
                let version = lock.split("name = \"rmcp\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
                format!("crate `rmcp` {}", version.expect("a version"))
            }
            Self::Curl => "Debian's `curl`".to_owned(),
            Self::EventSource => "Debian's `chromium`, headless".to_owned(),
        }
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "directly",
            Self::Nginx => "through nginx",
            Self::Stateless => STATELESS,
        }
    }
}

impl Scenario {
    /// What happens, and what the server answers.
    fn story(self) -> (&'static str, &'static str) {
        match self {
            Self::Calls => ("Calls and progress", "Nothing happens. The stream is sent whole, and ends."),
            Self::Cut => ("A cut", "The call's stream breaks. rejoin replays what came after the cursor, and goes on live."),
            Self::CutAgain => (
                "A cut of the resumed stream",
                "The stream breaks, and the one that resumed it breaks too. rejoin replays again.",
            ),
            Self::Evicted => (
                "An evicted cursor",
                "While the client is away, events that it has not seen are evicted. rejoin answers `resync` first, then what is left, the \
                 result with it.",
            ),
            Self::Lost => (
                "A lost result",
                "The result is evicted as well. rejoin answers `resync` first, then error -32010 `outcome_unknown` under the call's id.",
            ),
            Self::Expired => (
                "An expired session",
                "The session expires before the client's next call (before a browser comes back: it makes none). rejoin answers 404 \
                 `session_expired`, reason `expired`, and executes nothing.",
            ),
            Self::Gone => (
                "A session that ends while the client is away",
                "The call's stream breaks, and the session is deleted. rejoin answers the return with 404 `session_expired`, reason \
                 `deleted`.",
            ),
            Self::Restart => (
                "A server restart",
                "The server is killed during the call, and another with the same key file takes its place. It answers 404 \
                 `session_expired`, reason `restarted`.",
            ),
        }
    }
}

fn written() -> String {
    let mut page = ABOVE.to_owned();
    write!(page, "\nThe nginx is Debian's, with what follows and an `upstream` that has `keepalive`:\n\n```\n{SETTINGS}```\n")
        .expect("a string takes all");
    page.push_str("\n## The clients\n\n| client | what it is |\n|---|---|\n");
    for client in Client::ALL {
        writeln!(page, "| {} | {} |", client.name(), client.package()).expect("a string takes all");
    }
    for scenario in Scenario::ALL {
        let (title, story) = scenario.story();
        write!(page, "\n## {title}\n\n{story}\n\n{}", table(scenario)).expect("a string takes all");
    }
    page
}

/// What each client made of a scenario; a column for each way on which it can happen.
fn table(scenario: Scenario) -> String {
    let ways = Way::ALL.into_iter().filter(|way| way.has(scenario));
    let (heads, lines): (Vec<_>, Vec<_>) = ways.clone().map(|way| (way.name(), "---")).unzip();
    let mut table = format!("| client | {} |\n|---|{}|\n", heads.join(" | "), lines.join("|"));
    for client in Client::ALL {
        let direct = made_of(client, scenario, Way::Direct);
        let cell = |way| match way {
            Way::Direct => direct.clone(),
            _ if !client.plays(scenario, way) => "does not speak it".to_owned(),
            _ => Some(made_of(client, scenario, way)).filter(|made| *made != direct).unwrap_or_else(|| "the same".to_owned()),
        };
        let cells: Vec<String> = ways.clone().map(cell).collect();
        writeln!(table, "| {} | {} |", client.name(), cells.join(" | ")).expect("a string takes all");
    }
    table
}

#[test]
fn the_page_says_what_the_clients_did() {
    let path = installed("../docs").join("clients.md");
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let written = written();
    if std::env::var_os("UPDATE_CLIENTS").is_some() {
        fs::write(&path, &written).expect("the page is written");
    }
    let differing = committed.lines().zip(written.lines()).find(|(one, other)| one != other);
    assert!(committed == written, "docs/clients.md is not what the clients did; the first difference: {differing:#?}\n{written}");
}
