//! A call cut in its middle: each server, with both clients.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rejoin_tests::matrix::Flavour;
use rejoin_tests::proxy::{Asked, Cut, How, Proxy, Record};
use rejoin_tests::sdk::{Sdk, cuts_and_returns};
use rejoin_tests::server::Rejoin;
use serde_json::{Value, json};

use crate::public::{Folder, call, call_with_progress, clients, everything, filesystem, git, serving, session, slow_fetch, time};

const HOWS: [How; 3] = [How::Reset, How::Truncate, How::CleanEnd];

/// Steps of a long call.
const STEPS: usize = 8;

/// A stream from the beginning: where the answer is ready at once, else it would be one JSON body, with nothing to be cut.
const ALWAYS_A_STREAM: [&str; 4] = ["--retry", "200ms", "--response", "sse"];

/// A proxy that cuts the call once, after so many messages.
fn cutting(server: &Rejoin, after_messages: usize, how: How) -> Proxy {
    Proxy::start(server.address, move |asked: &Asked, _: &Record| {
        asked.calls("tools/call").then_some(Cut { after_messages, how })
    })
}

/// What the client's only call came to.
fn outcome<'a>(label: &str, seen: &'a Value) -> &'a Value {
    assert!(seen["error"].is_null() && seen["did"][0]["error"].is_null(), "{label}: {seen}");
    &seen["did"][0]
}

fn ticks(outcome: &Value) -> Vec<usize> {
    outcome["ticks"].as_array().expect("ticks").iter().map(|tick| tick.as_f64().expect("a number") as usize).collect()
}

/// One session for each place of a long call, each cut once there, all at once.
fn a_long_call_survives_a_cut_anywhere(sdk: &Sdk) {
    let command = everything();
    let server = Rejoin::start(Flavour::PLAIN, &serving(&["--retry", "200ms"], &command));
    let proxies: Vec<_> = (0..=STEPS).map(|at| (at, HOWS[at % 3], cutting(&server, at, HOWS[at % 3]))).collect();
    let long = call_with_progress("trigger-long-running-operation", json!({"duration": 2, "steps": STEPS}));
    let sessions: Vec<_> = proxies.iter().map(|(_, _, proxy)| session(&proxy.url(), &[], std::slice::from_ref(&long))).collect();
    let seen = sdk.drive(&sessions);
    for (at, how, proxy) in &proxies {
        let label = format!("{}, {how:?} after {at} messages", sdk.name);
        let outcome = outcome(&label, &seen[&proxy.url()]);
        assert_eq!(ticks(outcome), (1..=STEPS).collect::<Vec<_>>(), "{label}");
        let expected = format!("Long running operation completed. Duration: 2 seconds, Steps: {STEPS}.");
        assert_eq!(outcome["result"]["content"][0]["text"], expected, "{label}");
        cuts_and_returns(&label, &proxy.record(), 1);
    }
}

#[test]
fn everything_with_typescript() {
    a_long_call_survives_a_cut_anywhere(&Sdk::typescript("script"));
}

#[test]
fn everything_with_python() {
    a_long_call_survives_a_cut_anywhere(&Sdk::python("script"));
}

/// Both clients at once call a tool once for each way to cut it before its answer. The call is made for each anew; the texts of the
/// results come back, in order.
fn cut_before_the_answer(command: &str, mut made: impl FnMut() -> Value) -> Vec<String> {
    let server = Rejoin::start(Flavour::PLAIN, &serving(&ALWAYS_A_STREAM, command));
    let mut texts = Vec::new();
    for sdk in clients() {
        let proxies = HOWS.map(|how| (how, cutting(&server, 0, how)));
        let sessions: Vec<_> = proxies.iter().map(|(_, proxy)| session(&proxy.url(), &[], &[made()])).collect();
        let seen = sdk.drive(&sessions);
        for (how, proxy) in &proxies {
            let label = format!("{}, {how:?} before the answer", sdk.name);
            let result = &outcome(&label, &seen[&proxy.url()])["result"];
            assert_ne!(result["isError"], true, "{label}: {result}");
            texts.push(result["content"][0]["text"].as_str().expect("text").to_owned());
            cuts_and_returns(&label, &proxy.record(), 1);
        }
    }
    texts
}

#[test]
fn time_tells_it() {
    let asked = json!({"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    for text in cut_before_the_answer(&time(), || call("convert_time", asked.clone())) {
        assert!(text.contains("T12:00:00+0") && text.contains("Asia/Tokyo"), "{text}");
    }
}

/// Each commit is one execution: git counts them.
#[test]
fn git_commits_once() {
    let mut repositories = Vec::new();
    let texts = cut_before_the_answer(&git(), || {
        let repository = Folder::repository();
        let arguments = json!({"repo_path": repository.path(), "message": "cut off"});
        repositories.push(repository);
        call("git_commit", arguments)
    });
    assert_eq!((texts.len(), repositories.len()), (6, 6));
    for (text, repository) in texts.iter().zip(&repositories) {
        assert_eq!(repository.git(&["rev-list", "--count", "--all"]).trim(), "1", "{text}");
        let head = repository.git(&["rev-parse", "HEAD"]);
        assert!(text.contains(head.trim()), "{text} of {head}");
    }
}

/// An edit that is made a second time finds nothing to change, and fails.
#[test]
fn filesystem_edits_once() {
    let folder = Folder::new();
    let mut files = 0..;
    let texts = cut_before_the_answer(&filesystem(folder.path()), || {
        let name = format!("file-{}", files.next().expect("no end"));
        folder.write(&name, "before\n");
        let edits = json!([{"oldText": "before", "newText": "after"}]);
        call("edit_file", json!({"path": folder.file(&name), "edits": edits}))
    });
    assert!(texts.iter().all(|text| text.contains("+after")), "{texts:?}");
    assert!((0..texts.len()).all(|at| folder.read(&format!("file-{at}")) == "after\n"));
}

/// A page that takes a second, for so many visits; the thread ends after them.
fn slow_page(visits: usize) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/page", listener.local_addr().expect("bound"));
    let visit = |mut socket: TcpStream| {
        assert!(socket.read(&mut [0; 4096]).expect("a request") > 0);
        thread::sleep(Duration::from_secs(1));
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\nConnection: close\r\n\r\nslow page";
        socket.write_all(answer.as_bytes()).expect("written");
    };
    let served = thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok).take(visits) {
            thread::spawn(move || visit(socket));
        }
        // One visit more would be another execution.
        listener.set_nonblocking(true).expect("a listener takes options");
        thread::sleep(Duration::from_secs(2));
        assert!(listener.accept().is_err(), "the page was fetched once more");
    });
    (url, served)
}

/// A real server wrapped so that it starts after four seconds, and a tool that takes as long as the page it fetches.
#[test]
fn fetch_that_is_slow_to_start_fetches_once() {
    let (url, served) = slow_page(HOWS.len());
    let command = slow_fetch();
    let server = Rejoin::start(Flavour::PLAIN, &serving(&ALWAYS_A_STREAM, &command));
    let [typescript, python] = clients();
    let proxies = [(HOWS[0], &typescript), (HOWS[1], &python), (HOWS[2], &typescript)];
    let proxies = proxies.map(|(how, sdk)| (sdk, how, cutting(&server, 0, how)));
    let fetch = call("fetch", json!({"url": url, "raw": true}));
    let seen: Vec<Value> = thread::scope(|scope| {
        let driven = proxies.each_ref().map(|(sdk, _, proxy)| {
            let asked = session(&proxy.url(), &[], std::slice::from_ref(&fetch));
            scope.spawn(move || sdk.drive(&[asked]).pop_first().expect("one session").1)
        });
        driven.map(|driven| driven.join().expect("driven")).into()
    });
    for ((sdk, how, proxy), seen) in proxies.iter().zip(&seen) {
        let label = format!("{}, {how:?} while it fetches", sdk.name);
        let result = &outcome(&label, seen)["result"];
        assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("slow page")), "{label}: {result}");
        cuts_and_returns(&label, &proxy.record(), 1);
    }
    served.join().expect("the page was fetched once a call");
}
