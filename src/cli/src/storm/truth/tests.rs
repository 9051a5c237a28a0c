//! Streams as they should be and as they must never be: each forbidden outcome is named, and nothing else is.

use serde_json::json;

use super::*;

const COUNT: u32 = 4;

fn oracle() -> Oracle {
    let mut oracle = Oracle::default();
    oracle.session();
    call(&mut oracle, 1);
    oracle
}

fn call(oracle: &mut Oracle, number: u32) {
    let expected = Expected::Ticks { count: COUNT, key: format!("key-{number}").into() };
    oracle.call(0, Sent { id: format!("call-{number}").into(), token: format!("token-{number}").into(), expected });
    oracle.opened(None);
}

fn tick_of(number: u32, of: u32) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": format!("token-{of}"), "progress": number}})
        .to_string()
}

fn result_of(number: u32, executions: u32) -> String {
    let text = json!({"ticks": COUNT, "key": format!("key-{number}"), "executions": executions}).to_string();
    json!({"jsonrpc": "2.0", "id": format!("call-{number}"), "result": {"content": [{"type": "text", "text": text}]}}).to_string()
}

fn say(oracle: &mut Oracle, id: &str, data: &str) -> Seen {
    oracle.item(0, Item { event: "message", id: Some(id), data: Some(data) })
}

fn tick(oracle: &mut Oracle, id: &str, number: u32) -> Seen {
    say(oracle, id, &tick_of(number, 1))
}

fn ticks(oracle: &mut Oracle, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        tick(oracle, &number.to_string(), number);
    }
}

fn answer(oracle: &mut Oracle) -> Seen {
    say(oracle, "r", &result_of(1, 1))
}

fn open(oracle: &mut Oracle, id: &str) {
    assert_eq!(oracle.item(0, Item { event: "message", id: Some(id), data: Some("") }), Seen::Opening);
}

fn resync(oracle: &mut Oracle, lost: Option<u64>) {
    resync_at(oracle, "somewhere", lost);
}

fn resync_at(oracle: &mut Oracle, id: &str, lost: Option<u64>) {
    let data = json!({"lost": lost, "reason": "evicted"}).to_string();
    assert_eq!(oracle.item(0, Item { event: "resync", id: Some(id), data: Some(&data) }), Seen::Resync);
}

fn outcomes(oracle: &mut Oracle) -> Vec<Outcome> {
    oracle.take_found().into_iter().map(|violation| violation.outcome).collect()
}

#[test]
fn the_ids_that_a_session_has_had_are_its_own_beyond_the_call() {
    let mut oracle = Oracle::default();
    let sent = |id: &str| Sent { id: id.into(), token: id.into(), expected: Expected::Anything };
    oracle.call(0, sent("a"));
    oracle.item(1, Item { event: "message", id: Some("event-1"), data: Some(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#) });
    assert!(oracle.has_had("event-1") && !oracle.has_had("event-2"));
    oracle.call(2, sent("b"));
    assert!(oracle.has_had("event-1"), "a call later");
    oracle.session();
    assert!(!oracle.has_had("event-1"), "another session's");
}

#[test]
fn a_whole_call_is_no_violation() {
    let mut oracle = oracle();
    open(&mut oracle, "0");
    assert_eq!(tick(&mut oracle, "1", 1), Seen::Tick(1));
    ticks(&mut oracle, 2..=COUNT);
    assert_eq!(answer(&mut oracle), Seen::Answer);
    assert_eq!(oracle.fate(), Some(("call-1", Fate::Answered)));
    call(&mut oracle, 2);
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn ticks_without_a_token_and_an_answer_as_json_are_read_too() {
    let mut oracle = oracle();
    for number in 1..=COUNT {
        let params = json!({"level": "info", "data": {"tick": number, "pad": ""}});
        let data = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string();
        assert_eq!(say(&mut oracle, &number.to_string(), &data), Seen::Tick(number));
    }
    assert_eq!(oracle.body(0, &result_of(1, 1)), Seen::Answer);
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn a_resumed_stream_goes_on_strictly_after_its_cursor() {
    let mut oracle = oracle();
    open(&mut oracle, "0");
    ticks(&mut oracle, 1..=2);
    oracle.opened(Some("2"));
    open(&mut oracle, "2");
    ticks(&mut oracle, 3..=4);
    answer(&mut oracle);
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn an_older_cursor_brings_the_same_events_again_and_that_is_right() {
    let mut oracle = oracle();
    open(&mut oracle, "0");
    ticks(&mut oracle, 1..=3);
    for (cursor, from) in [("1", 2), ("0", 1), ("3", 4)] {
        oracle.opened(Some(cursor));
        ticks(&mut oracle, from..=3);
    }
    ticks(&mut oracle, [4]);
    answer(&mut oracle);
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn an_event_left_out_of_a_replay_is_a_silent_gap() {
    let mut oracle = oracle();
    ticks(&mut oracle, 1..=3);
    oracle.opened(Some("1"));
    ticks(&mut oracle, [3]);
    assert_eq!(outcomes(&mut oracle), [Outcome::SilentGap]);
}

#[test]
fn a_missing_tick_is_a_silent_gap_whether_in_the_middle_or_at_the_end() {
    for missing in 1..=COUNT {
        let mut oracle = oracle();
        ticks(&mut oracle, (1..=COUNT).filter(|&number| number != missing));
        assert_eq!(outcomes(&mut oracle), [], "it may still come");
        answer(&mut oracle);
        assert_eq!(outcomes(&mut oracle), [Outcome::SilentGap], "tick {missing}");
    }
}

#[test]
fn a_gap_is_told_even_where_no_result_comes() {
    let mut oracle = oracle();
    ticks(&mut oracle, [1, 3]);
    oracle.session();
    assert_eq!(outcomes(&mut oracle), [Outcome::SilentGap]);
}

#[test]
fn a_resync_excuses_what_it_counts_and_no_more() {
    for (lost, found) in [(Some(2), vec![]), (Some(1), vec![Outcome::SilentGap]), (None, vec![])] {
        let mut oracle = oracle();
        ticks(&mut oracle, [1]);
        oracle.opened(Some("1"));
        resync(&mut oracle, lost);
        ticks(&mut oracle, [4]);
        answer(&mut oracle);
        assert_eq!(outcomes(&mut oracle), found, "lost {lost:?}");
    }
}

#[test]
fn a_resync_before_the_result_excuses_the_last_ticks() {
    let mut oracle = oracle();
    ticks(&mut oracle, [1]);
    resync(&mut oracle, Some(3));
    answer(&mut oracle);
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn a_resync_excuses_nothing_behind_the_event_that_follows_it() {
    let mut oracle = oracle();
    resync(&mut oracle, Some(9));
    ticks(&mut oracle, [1, 2, 4]);
    answer(&mut oracle);
    assert_eq!(outcomes(&mut oracle), [Outcome::SilentGap]);
}

#[test]
fn a_client_that_is_cut_right_behind_a_resync_stands_behind_the_gap() {
    for (cursor, found) in [("somewhere", vec![]), ("1", vec![Outcome::SilentGap])] {
        let mut oracle = oracle();
        ticks(&mut oracle, [1]);
        resync(&mut oracle, Some(2));
        oracle.opened(Some(cursor));
        ticks(&mut oracle, [4]);
        answer(&mut oracle);
        assert_eq!(outcomes(&mut oracle), found, "after {cursor}");
    }
}

#[test]
fn one_gap_may_be_told_by_several_resyncs_each_behind_the_one_before() {
    for (second, found) in [(1, vec![]), (0, vec![Outcome::SilentGap])] {
        let mut oracle = oracle();
        ticks(&mut oracle, [1]);
        oracle.opened(Some("1"));
        resync_at(&mut oracle, "2", Some(1));
        oracle.opened(Some("2"));
        resync_at(&mut oracle, "3", Some(second));
        oracle.opened(Some("3"));
        ticks(&mut oracle, [4]);
        answer(&mut oracle);
        assert_eq!(outcomes(&mut oracle), found, "1 and {second}");
    }
}

#[test]
fn an_event_twice_is_a_duplicate_under_its_own_id_and_under_another() {
    for again in ["2", "2b"] {
        let mut oracle = oracle();
        ticks(&mut oracle, 1..=2);
        oracle.opened(Some("2"));
        tick(&mut oracle, again, 2);
        ticks(&mut oracle, 3..=4);
        answer(&mut oracle);
        assert_eq!(outcomes(&mut oracle), [Outcome::Duplicate], "as {again}");
    }
}

#[test]
fn a_second_answer_is_a_duplicate() {
    let mut oracle = oracle();
    ticks(&mut oracle, 1..=COUNT);
    answer(&mut oracle);
    say(&mut oracle, "r2", &result_of(1, 1));
    assert_eq!(outcomes(&mut oracle), [Outcome::Duplicate]);
}

#[test]
fn a_late_tick_is_a_reorder_and_no_gap() {
    let mut oracle = oracle();
    ticks(&mut oracle, [1, 3, 2, 4]);
    answer(&mut oracle);
    assert_eq!(outcomes(&mut oracle), [Outcome::Reorder]);
}

#[test]
fn an_id_that_named_another_event_is_a_restart() {
    let mut oracle = oracle();
    ticks(&mut oracle, 1..=2);
    oracle.opened(Some("2"));
    tick(&mut oracle, "1", 3);
    assert_eq!(outcomes(&mut oracle), [Outcome::RestartedIds]);
}

#[test]
fn an_opening_with_the_id_of_another_place_is_a_restart() {
    let mut oracle = oracle();
    open(&mut oracle, "0");
    ticks(&mut oracle, 1..=2);
    oracle.opened(Some("2"));
    open(&mut oracle, "0");
    assert_eq!(outcomes(&mut oracle), [Outcome::RestartedIds]);
}

#[test]
fn an_id_of_an_earlier_call_is_a_restart_but_not_in_another_session() {
    let mut oracle = oracle();
    ticks(&mut oracle, 1..=COUNT);
    answer(&mut oracle);
    call(&mut oracle, 2);
    say(&mut oracle, "1", &tick_of(1, 2));
    assert_eq!(outcomes(&mut oracle), [Outcome::RestartedIds]);
    oracle.session();
    call(&mut oracle, 3);
    say(&mut oracle, "1", &tick_of(1, 3));
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn what_another_call_or_session_should_have_had_is_foreign() {
    for data in [tick_of(1, 2), result_of(2, 1), result_of(1, 1).replace("key-1", "key-9")] {
        let mut oracle = oracle();
        say(&mut oracle, "1", &data);
        let found = outcomes(&mut oracle);
        assert_eq!(found, [Outcome::ForeignEvent], "{data}");
    }
}

#[test]
fn a_second_execution_shows_in_the_result_or_in_ticks_that_begin_anew() {
    let mut counted = oracle();
    ticks(&mut counted, 1..=COUNT);
    say(&mut counted, "r", &result_of(1, 2));
    assert_eq!(outcomes(&mut counted), [Outcome::DoubleExecution]);
    let mut anew = oracle();
    ticks(&mut anew, 1..=2);
    anew.opened(Some("2"));
    tick(&mut anew, "1b", 1);
    assert_eq!(outcomes(&mut anew), [Outcome::DoubleExecution]);
}

#[test]
fn a_complete_stream_without_its_result_lost_it() {
    let mut oracle = oracle();
    ticks(&mut oracle, 1..=COUNT);
    oracle.complete();
    assert_eq!(outcomes(&mut oracle), [Outcome::LostResult]);
    let mut oracle = self::oracle();
    ticks(&mut oracle, 1..=COUNT);
    answer(&mut oracle);
    oracle.complete();
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn an_outcome_that_the_server_does_not_know_is_told_and_no_violation() {
    let mut oracle = oracle();
    ticks(&mut oracle, 1..=2);
    resync(&mut oracle, Some(3));
    let error = json!({"jsonrpc": "2.0", "id": "call-1", "error": {"code": -32010, "message": "?"}}).to_string();
    say(&mut oracle, "e", &error);
    assert_eq!(oracle.fate(), Some(("call-1", Fate::Unknown)));
    assert_eq!(outcomes(&mut oracle), []);
}

#[test]
fn any_other_tool_is_held_to_ids_and_answers() {
    let mut oracle = Oracle::default();
    oracle.call(0, Sent { id: "7".into(), token: "t".into(), expected: Expected::Anything });
    oracle.opened(None);
    say(&mut oracle, "a", &json!({"jsonrpc": "2.0", "id": 7, "result": {"content": []}}).to_string());
    assert_eq!(oracle.fate(), Some(("7", Fate::Answered)));
    assert_eq!(outcomes(&mut oracle), []);
    say(&mut oracle, "b", &json!({"jsonrpc": "2.0", "id": 8, "result": {}}).to_string());
    assert_eq!(outcomes(&mut oracle), [Outcome::ForeignEvent]);
}

#[test]
fn a_violation_shows_the_stream_up_to_it_and_one_mistake_is_told_once() {
    let mut oracle = oracle();
    ticks(&mut oracle, [1, 1, 1]);
    let found = oracle.take_found();
    assert_eq!(found.len(), 1);
    assert!(found[0].transcript.contains("> POST tools/call id call-1"), "{}", found[0].transcript);
    assert!(
        found[0].transcript.trim_end().lines().last().is_some_and(|line| line.contains("< id: 1 data: ")),
        "{}",
        found[0].transcript
    );
}

#[test]
fn a_refusal_of_the_client_is_told_where_nothing_else_is_wrong() {
    let mut found = oracle();
    ticks(&mut found, [1, 2]);
    found.client_refused("event 5 after 3".to_owned());
    assert_eq!(outcomes(&mut found), [], "what is wrong may still show");
    found.end_call();
    let violations = found.take_found();
    assert_eq!(violations.iter().map(|violation| violation.outcome).collect::<Vec<_>>(), [Outcome::ContinuityViolated]);
    assert!(violations[0].text.contains("event 5 after 3") && violations[0].transcript.contains("< id: 2"), "{violations:?}");

    let mut agree = oracle();
    ticks(&mut agree, [1, 2, 4]);
    agree.client_refused("event 4 after 2".to_owned());
    call(&mut agree, 2);
    assert_eq!(outcomes(&mut agree), [Outcome::SilentGap]);
}

#[test]
fn what_is_missing_when_nothing_more_comes_is_told() {
    let mut oracle = oracle();
    ticks(&mut oracle, [1, 3]);
    oracle.end_call();
    assert_eq!(outcomes(&mut oracle), [Outcome::SilentGap]);
}
