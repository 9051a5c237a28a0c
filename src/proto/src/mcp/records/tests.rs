use super::*;
use proptest::prelude::*;

fn limits(seen_ids: usize, call_records: usize) -> Limits {
    Limits { seen_ids, call_records, ..Limits::default() }
}

fn calls() -> CallIds {
    CallIds::new(&limits(8, 8))
}

fn alone(number: u32) -> Execution {
    Execution::Alone { stream: StreamNumber(number) }
}

fn batch(stream: u32) -> Execution {
    Execution::Batch { stream: StreamNumber(stream) }
}

fn joins(number: u32) -> Presented {
    Presented::Repost { stream: StreamNumber(number) }
}

const ONE: Id = Id::Integer(1);
const TOOL: bool = true;
const OTHER: bool = false;

#[test]
fn a_tools_call_posted_again_joins_the_first() {
    let mut calls = calls();
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(1)), Presented::Fresh);
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(2)), joins(1));
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(3)), joins(1), "always the first");
    assert!(!calls.marked());
}

#[test]
fn another_request_unchanged_is_executed_again_and_marks_nothing() {
    let mut calls = calls();
    calls.present(&ONE, OTHER, 7, alone(1));
    assert_eq!(calls.present(&ONE, OTHER, 7, alone(2)), Presented::Again);
    assert!(!calls.marked());
}

#[test]
fn an_id_with_another_body_marks_the_session_for_good() {
    let mut calls = calls();
    calls.present(&ONE, TOOL, 7, alone(1));
    assert_eq!(calls.present(&ONE, TOOL, 8, alone(2)), Presented::Reused);
    assert!(calls.marked());
    for (id, body) in [(1, 7), (1, 8), (2, 9), (2, 9)] {
        assert_eq!(calls.present(&Id::Integer(id), TOOL, body, alone(3)), Presented::Marked);
    }
    calls.rotate();
    assert!(calls.marked());
}

#[test]
fn classifying_changes_nothing() {
    let mut calls = calls();
    assert_eq!(calls.classify(&ONE, TOOL, 7, alone(1)), Presented::Fresh);
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(2)), Presented::Fresh, "a shed call may be sent again");
    assert_eq!(calls.classify(&ONE, TOOL, 8, alone(3)), Presented::Reused);
    assert!(!calls.marked());
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(4)), joins(2));
}

#[test]
fn the_client_that_sends_one_id_with_everything_is_told_by_its_second_request() {
    let mut calls = calls();
    calls.present_apart(&ONE, 1);
    assert_eq!(calls.present(&ONE, TOOL, 2, alone(1)), Presented::Reused);
    assert_eq!(calls.present(&ONE, TOOL, 2, alone(2)), Presented::Marked);
}

#[test]
fn what_ran_under_an_idempotency_key_is_never_joined_by_its_id() {
    let mut calls = calls();
    calls.present_apart(&ONE, 7);
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(1)), Presented::RecordGone);
    calls.present(&Id::Integer(2), TOOL, 7, alone(2));
    calls.present_apart(&Id::Integer(2), 9);
    assert_eq!(calls.present(&Id::Integer(2), TOOL, 7, alone(3)), joins(2), "a key decides first, and says nothing of ids");
    assert!(!calls.marked());
}

#[test]
fn a_record_past_the_bound_is_gone_but_its_id_stays_seen() {
    let mut calls = CallIds::new(&limits(8, 2));
    for id in 1..=3 {
        assert_eq!(calls.present(&Id::Integer(id), TOOL, 7, alone(id as u32)), Presented::Fresh);
    }
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(9)), Presented::RecordGone);
    assert_eq!(calls.present(&ONE, OTHER, 7, alone(9)), Presented::Again);
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(9)), Presented::RecordGone, "what was not a call made no record");
    assert_eq!(calls.present(&Id::Integer(2), TOOL, 7, alone(9)), joins(2));
    let mut none = CallIds::new(&limits(8, 0));
    none.present(&ONE, TOOL, 7, alone(1));
    assert_eq!(none.present(&ONE, TOOL, 7, alone(1)), Presented::RecordGone);
}

#[test]
fn after_a_rotation_a_repost_is_neither_executed_nor_joined() {
    let mut calls = calls();
    calls.present(&ONE, TOOL, 7, alone(1));
    calls.present(&Id::Integer(2), TOOL, 7, batch(2));
    calls.rotate();
    assert_eq!(calls.present(&ONE, TOOL, 7, alone(1)), Presented::RecordGone);
    assert_eq!(calls.present(&Id::Integer(2), TOOL, 7, batch(2)), Presented::RecordGone, "stream numbers begin again");
    assert_eq!(calls.present(&Id::Integer(3), TOOL, 7, alone(3)), Presented::Fresh);
    assert_eq!(calls.present(&Id::Integer(3), TOOL, 7, alone(4)), joins(3));
    assert_eq!(calls.present(&ONE, TOOL, 8, alone(5)), Presented::Reused, "bodies are kept for the session's life");
}

#[test]
fn a_batch_is_never_a_repost() {
    let mut calls = calls();
    assert_eq!(calls.present(&ONE, TOOL, 7, batch(1)), Presented::Fresh);
    assert_eq!(calls.present(&Id::Integer(2), OTHER, 7, batch(1)), Presented::Fresh);
    assert_eq!(calls.present(&ONE, TOOL, 7, batch(2)), Presented::RecordGone, "sent again, it may have run");
    assert_eq!(calls.present(&Id::Integer(2), OTHER, 7, batch(2)), Presented::Again);
    assert_eq!(calls.classify(&ONE, TOOL, 7, alone(3)), Presented::RecordGone);
    assert_eq!(calls.present(&ONE, TOOL, 8, alone(3)), Presented::Reused);
}

#[test]
fn an_id_twice_in_one_batch_is_reused() {
    for tools_call in [TOOL, OTHER] {
        let mut calls = calls();
        calls.present(&ONE, tools_call, 7, batch(1));
        assert_eq!(calls.present(&ONE, tools_call, 7, batch(1)), Presented::Reused);
    }
}

#[test]
fn ids_past_the_bound_mark_the_session() {
    let mut calls = CallIds::new(&limits(1, 8));
    calls.present(&ONE, TOOL, 7, alone(1));
    assert_eq!(calls.classify(&Id::Integer(9), TOOL, 7, alone(2)), Presented::Overflowed);
    assert!(!calls.marked());
    assert_eq!(calls.present(&Id::Integer(9), TOOL, 7, alone(2)), Presented::Overflowed);
    assert!(calls.marked());
    let mut calls = CallIds::new(&limits(0, 8));
    calls.present_apart(&ONE, 7);
    assert!(calls.marked());
}

#[test]
fn a_session_of_four_calls_stays_small() {
    assert_eq!((size_of::<CallIds>(), size_of::<Record>()), (96, 48));
    let mut calls = calls();
    for id in 0..4 {
        calls.present(&Id::Integer(id), TOOL, 7, alone(1));
    }
    let memory = calls.memory.as_ref().expect("not marked");
    assert_eq!(memory.records.capacity() * size_of::<Record>(), 4 * 48, "all the heap there is");
    assert_eq!(calls.present(&ONE, TOOL, 8, alone(1)), Presented::Reused);
    assert!(calls.memory.is_none(), "a marked session keeps nothing");
}

/// What a client may do.
#[derive(Clone, Debug)]
enum Step {
    Post { id: Id, tools_call: bool, body: u128 },
    Batch { ids: Vec<(Id, bool)>, body: u128 },
    Apart { id: Id, body: u128 },
    Rotate,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || prop_oneof![4 => (0i64..12).prop_map(Id::Integer), 1 => "[a-d]".prop_map(|text| Id::Text(text.into()))];
    // One body is the rule, so that sessions live long before an id is reused. The method is a part of the body.
    let request = (id(), any::<bool>(), prop_oneof![20 => Just(0u128), 1 => Just(2)]);
    prop_oneof![
        12 => request.prop_map(|(id, tools_call, body)| Step::Post { id, tools_call, body: body + u128::from(tools_call) }),
        2 => (prop::collection::vec((id(), any::<bool>()), 1..3), 10u128..12).prop_map(|(ids, body)| Step::Batch { ids, body }),
        1 => (id(), 0u128..2).prop_map(|(id, body)| Step::Apart { id, body }),
        1 => Just(Step::Rotate),
    ]
}

/// Keeps every request that ever counted as seen, in order, and searches all of it each time.
struct Oracle {
    history: Vec<(Id, u128, Option<Execution>)>,
    marked: bool,
    limits: Limits,
}

impl Oracle {
    /// Whether the memory of ids that are seen with this one would be larger than the bound.
    fn overflows(&self, id: &Id) -> bool {
        let size = |ids: &[&Id]| match id {
            Id::Integer(_) => {
                let mut integers: Vec<i64> =
                    ids.iter().filter_map(|id| if let Id::Integer(value) = id { Some(*value) } else { None }).collect();
                integers.sort_unstable();
                integers.chunk_by(|a, b| a + 1 == *b).count()
            }
            Id::Large(_) | Id::Text(_) => ids.iter().filter(|id| !matches!(id, Id::Integer(_))).count(),
        };
        let mut ids: Vec<&Id> = self.history.iter().map(|(seen, _, _)| seen).collect();
        let before = size(&ids);
        ids.push(id);
        size(&ids) > before.max(self.limits.seen_ids)
    }

    fn see(&mut self, id: &Id, body: u128, execution: Option<Execution>) {
        if !self.marked && !self.history.iter().any(|(seen, _, _)| seen == id) {
            self.marked = self.overflows(id);
            self.history.push((id.clone(), body, execution));
        }
    }

    fn present(&mut self, id: &Id, tools_call: bool, body: u128, execution: Execution) -> Presented {
        if self.marked {
            return Presented::Marked;
        }
        let Some(at) = self.history.iter().position(|(seen, _, _)| seen == id) else {
            self.see(id, body, Some(execution));
            return if self.marked { Presented::Overflowed } else { Presented::Fresh };
        };
        let kept = at + self.limits.call_records >= self.history.len();
        let (_, first_body, first) = &self.history[at];
        let same_batch = matches!(execution, Execution::Batch { .. }) && *first == Some(execution);
        let presented = match (kept, *first) {
            (true, _) if *first_body != body || same_batch => Presented::Reused,
            _ if !tools_call => Presented::Again,
            (true, Some(Execution::Alone { stream })) if matches!(execution, Execution::Alone { .. }) => {
                Presented::Repost { stream }
            }
            _ => Presented::RecordGone,
        };
        self.marked = presented == Presented::Reused;
        presented
    }

    fn rotate(&mut self) {
        self.history.iter_mut().for_each(|(_, _, execution)| *execution = None);
    }
}

proptest! {
    #[test]
    fn as_an_oracle_that_keeps_everything(
        steps in prop::collection::vec(step(), 0..60), seen_ids in 1usize..10, call_records in 0usize..12,
    ) {
        let limits = limits(seen_ids, call_records);
        let mut calls = CallIds::new(&limits);
        let mut oracle = Oracle { history: Vec::new(), marked: false, limits };
        let mut executed: Vec<(Id, u128)> = Vec::new();
        for (number, step) in (1..).zip(steps) {
            let posted = match step {
                Step::Post { id, tools_call, body } => vec![(id, tools_call, body, alone(number))],
                Step::Batch { ids, body } => ids.into_iter().map(|(id, tools_call)| (id, tools_call, body, batch(number))).collect(),
                Step::Apart { id, body } => {
                    calls.present_apart(&id, body);
                    oracle.see(&id, body, None);
                    vec![]
                }
                Step::Rotate => {
                    calls.rotate();
                    oracle.rotate();
                    vec![]
                }
            };
            for (id, tools_call, body, execution) in posted {
                let classified = calls.classify(&id, tools_call, body, execution);
                let presented = calls.present(&id, tools_call, body, execution);
                prop_assert_eq!(presented, oracle.present(&id, tools_call, body, execution));
                prop_assert_eq!(presented, classified);
                // The promise behind the table: while the session is unmarked, no call runs twice.
                if presented == Presented::Fresh && tools_call {
                    prop_assert!(!executed.contains(&(id.clone(), body)));
                    executed.push((id, body));
                }
                if presented == Presented::Again {
                    prop_assert!(!tools_call);
                }
            }
            prop_assert_eq!(calls.marked(), oracle.marked);
        }
    }
}
