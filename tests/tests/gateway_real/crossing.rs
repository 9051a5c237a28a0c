//! Two sessions of one client that uses one id and one progress token for everything.

use std::thread;

use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call_with_token, messages_of, text_of};
use serde_json::json;

use crate::public::{everything, serving};

on_every_server!(six_calls_at_once_in_each_of_two_sessions_do_not_cross);

/// Calls at once in each session.
const CALLS: u64 = 6;

fn six_calls_at_once_in_each_of_two_sessions_do_not_cross(on: Flavour) {
    let command = everything();
    let server = Rejoin::start(on, &serving(&[], &command));
    let sessions = [0, 1].map(|_| Session::begin(server.address, NOVEMBER));
    thread::scope(|scope| {
        for at in 0..2 * CALLS {
            let session = &sessions[(at % 2) as usize];
            // Each call has a number of steps of its own, by which its messages are known.
            scope.spawn(move || its_own_progress_and_result(session, 3 + at));
        }
    });
    let children = server.children();
    assert_eq!(children.len(), 2, "a child each: {children:?}");
}

fn its_own_progress_and_result(session: &Session, steps: u64) {
    let arguments = json!({"duration": 1, "steps": steps});
    let messages = messages_of(&session.tell(&call_with_token(1, "token", "trigger-long-running-operation", arguments)));
    let (result, told) = messages.split_last().expect("a result");
    // It says of itself that its tools have changed, after the handshake: on a call's stream, where that call is the only one by then.
    let (progress, other): (Vec<_>, Vec<_>) = told.iter().partition(|message| message["method"] == "notifications/progress");
    assert!(other.iter().all(|message| message["method"] == "notifications/tools/list_changed"), "{other:?}");
    let progress: Vec<_> = progress.iter().map(|message| message["params"].clone()).collect();
    let expected: Vec<_> = (1..=steps).map(|step| json!({"progressToken": "token", "progress": step, "total": steps})).collect();
    assert_eq!(progress, expected);
    assert_eq!(result["id"], 1, "{result}");
    let said = format!("Long running operation completed. Duration: 1 seconds, Steps: {steps}.");
    assert_eq!(text_of(&result["result"]), said);
}
