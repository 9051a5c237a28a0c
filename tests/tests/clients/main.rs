//! Clients that others wrote, unmodified, against the real server: what it owes them, and what they make of its answers.
//!
//! `cuts` cuts a call at each of its events in turn. The others play every scenario of `bed` with every client of `client`, directly and
//! through nginx: `judge` asserts what the server owes, `words` says what the client made of it, and `page` keeps `docs/clients.md` equal to
//! that. `scripts/test` installs the clients; without them these tests fail and say so.

mod bed;
mod browser;
mod client;
mod curl;
mod cuts;
mod judge;
mod page;
mod rust_sdk;
mod words;

use bed::{Scenario, Way};
use client::Client;

/// Makes a test for each client and scenario; each client plays all of its scenarios once, at the same time.
macro_rules! each {
    ($($client:ident = $of:expr),+ $(,)?) => { $(
        mod $client {
            use super::{Client, Way, Scenario, judge};

            const CLIENT: Client = $of;

            each!(@ calls Calls, a_cut Cut, a_second_cut CutAgain, an_evicted_cursor Evicted, a_lost_result Lost,
                an_expired_session Expired, an_ended_session Gone, a_restart Restart);
        }
    )+ };
    (@ $($test:ident $scenario:ident),+) => { $(
        mod $test {
            use super::{CLIENT, Way, Scenario, judge};

            #[test]
            fn directly() {
                judge::owed(CLIENT, Scenario::$scenario, Way::Direct);
            }

            #[test]
            fn through_nginx() {
                judge::owed(CLIENT, Scenario::$scenario, Way::Nginx);
            }
        }
    )+ };
}

each!(
    typescript_1 = Client::TypeScript1,
    typescript_2 = Client::TypeScript2,
    python = Client::Python,
    fastmcp = Client::FastMcp,
    rmcp = Client::Rmcp,
    curl_by_hand = Client::Curl,
    event_source = Client::EventSource,
);

/// The same in the era without sessions, for the clients that know both.
macro_rules! each_without_a_session {
    ($($test:ident $client:ident),+ $(,)?) => { $(
        mod $test {
            use super::{Client, Scenario, Way, judge};

            #[test]
            fn calls() {
                judge::owed(Client::$client, Scenario::Calls, Way::Stateless);
            }

            #[test]
            fn a_cut() {
                judge::owed(Client::$client, Scenario::Cut, Way::Stateless);
            }

            #[test]
            fn a_restart() {
                judge::owed(Client::$client, Scenario::Restart, Way::Stateless);
            }
        }
    )+ };
}

each_without_a_session!(
    typescript_2_without_a_session TypeScript2,
    python_without_a_session Python,
    fastmcp_without_a_session FastMcp,
    rmcp_without_a_session Rmcp,
);
