//! Whether the server is well, and what slow or wrong clients of the admin listener get.

use std::time::{Duration, Instant};

use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::command;
use rejoin_tests::session::{NOVEMBER, initialize};
use rejoin_tests::wire::{Answer, Connection, Request, ask};

use crate::boundary::{plain, session};
use crate::calls::running;
use crate::scrape::{Bed, page, scrape};

on_every_server!(
    a_server_that_drains_is_alive_and_not_ready,
    a_server_that_had_no_room_is_not_ready_for_a_while,
    the_shards_are_shown_without_names,
);

fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.body).expect("text")
}

fn a_server_that_drains_is_alive_and_not_ready(on: Flavour) {
    let bed = Bed::start(on, &["--drain", "20s"]);
    let ready = page(bed.admin, "/readyz");
    assert_eq!((ready.status(), text(&ready)), (200, "ready\n"));
    let _running = running(&session(&bed));
    bed.server.terminate();
    bed.until("rejoin_draining", |draining| draining >= 1.0);
    let ready = page(bed.admin, "/readyz");
    assert_eq!((ready.status(), text(&ready)), (503, "draining\n"));
    let health = page(bed.admin, "/healthz");
    assert_eq!((health.status(), text(&health)), (200, "ok\n"));
    assert_eq!(scrape(bed.admin).value("rejoin_calls_in_flight"), 1.0, "metrics go on");
}

fn a_server_that_had_no_room_is_not_ready_for_a_while(on: Flavour) {
    let bed = Bed::start(on, &["--max-sessions", "2"]);
    let sessions = [session(&bed), session(&bed)];
    let ready = page(bed.admin, "/readyz");
    assert!(ready.status() == 503 && text(&ready).contains("as many sessions"), "{}", text(&ready));
    assert_eq!(ask(bed.server.address, &Request::post(bed.server.address, &initialize(1, NOVEMBER))).status(), 503);
    let shed = Instant::now();
    ask(sessions[0].address, &sessions[0].delete());
    let ready = page(bed.admin, "/readyz");
    assert!(ready.status() == 503 && text(&ready).starts_with("shedding: there was no room"), "{}", text(&ready));
    while page(bed.admin, "/readyz").status() != 200 {
        assert!(shed.elapsed() < Duration::from_secs(20), "never ready again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(shed.elapsed() >= Duration::from_secs(9), "{:?}", shed.elapsed());
}

fn the_shards_are_shown_without_names(on: Flavour) {
    let bed = plain(on);
    let session = session(&bed);
    let _running = running(&session);
    let shown = page(bed.admin, "/debug/shards");
    let text = text(&shown);
    assert_eq!(text.matches("\nshard ").count(), usize::from(on.shards), "{text}");
    for word in ["1 in flight of 2 begun", "event log", "wheel", "handoffs", "mailbox", "1 of 10000", on_driver(on)] {
        assert!(text.contains(word) || word.contains("10000") && on.shards == 1, "no {word} in {text}");
    }
    assert!(!text.contains(&session.id), "{text}");
}

fn on_driver(on: Flavour) -> &'static str {
    if on.driver == "uring" { "io_uring" } else { "epoll" }
}

#[test]
fn only_get_and_head_of_the_pages_are_answered() {
    let bed = plain(Flavour::PLAIN);
    let request = |method: &str, path: &str| Request::new(method, bed.admin).target(path);
    let refused = ask(bed.admin, &request("POST", "/metrics").body("x"));
    assert_eq!((refused.status(), refused.head.field("Allow")), (405, Some("GET, HEAD")));
    assert_eq!(page(bed.admin, "/mcp").status(), 404);
    let mut head = Connection::open(bed.admin);
    head.send_head_request(&request("HEAD", "/healthz"));
    let answer = head.head();
    assert_eq!((answer.status(), answer.field("Content-Length")), (200, Some("3")));
    assert_eq!(answer.field("Cache-Control"), Some("no-store"));
    assert!(head.ended_within(Duration::from_secs(5)).is_some(), "one request a connection");
}

#[test]
fn a_page_elsewhere_whose_name_was_rebound_to_this_machine_reads_nothing() {
    let bed = plain(Flavour::PLAIN);
    let ask_as = |host: &str| ask(bed.admin, &Request::new("GET", bed.admin).target("/metrics").set("Host", host)).status();
    assert_eq!(ask_as("evil.example:9000"), 403);
    assert_eq!(ask_as("localhost"), 200);
}

#[test]
fn slow_clients_neither_pile_up_nor_lock_a_scraper_out() {
    let bed = plain(Flavour::PLAIN);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", bed.server.id())).expect("the server runs").count();
    let before = descriptors();
    let mut slow: Vec<_> = (0..100)
        .map(|_| {
            let mut slow = Connection::open(bed.admin);
            slow.try_write(b"GET /metrics HT");
            slow
        })
        .collect();
    let began = Instant::now();
    scrape(bed.admin);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(descriptors() <= before + 33, "{} more", descriptors() - before);
    let last = slow.pop().expect("a hundred");
    let mut last = last;
    assert!(last.ended_within(Duration::from_secs(8)).is_some(), "a head that does not come is not waited for");
}

#[test]
fn an_address_that_others_can_reach_is_said_in_the_log() {
    let server = rejoin_tests::server::Rejoin::start(Flavour::PLAIN, &["--admin", "0.0.0.0:0"]);
    assert!(server.logs("other machines can reach the admin listener"));
    let loopback = plain(Flavour::PLAIN);
    assert!(!loopback.server.log().contains("other machines"));
}

#[test]
fn an_admin_address_in_use_ends_the_start_with_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = command(&["--admin", &address]).env("RUST_LOG", "off").output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&format!("--admin {address}")), "{said}");
    assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
}
