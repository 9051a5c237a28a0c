//! Loom's proof of the rules: every interleaving, and every value that the memory model lets a load return.
//!
//! One slot, so that each session takes the place of the one before; owners differ, so that a principal seen with the wrong name
//! shows. Run by `scripts/loom`.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::ids::Key;

const KEY: Key = Key::new([3; 16]);
const BOOT: Boot = Boot(77);
const FIRST_OWNER: u64 = 1001;
const SECOND_OWNER: u64 = 1002;
const UNKNOWN: Liveness = Liveness::Ended(Ended::Unknown);
const DELETED: Liveness = Liveness::Ended(Ended::Deleted);

fn id(nonce: u8) -> SessionId {
    SessionId::mint(&KEY, ShardIndex(0), SlotIndex(0), BOOT, [nonce; 16])
}

fn open(writer: &mut Writer, nonce: u8, principal_tag: u64) {
    assert_eq!(writer.reserve(), Some(SlotIndex(0)));
    writer.publish(&id(nonce), principal_tag);
}

/// What may be answered in turn while a session begins, ends as deleted, and gives up its slot.
fn age(answer: Liveness, after_its_life: bool) -> u8 {
    match answer {
        UNKNOWN if !after_its_life => 0,
        Liveness::Live => 1,
        DELETED => 2,
        UNKNOWN => 3,
        other => panic!("{other:?} was never true"),
    }
}

#[test]
fn a_reused_slot_never_answers_for_its_former_session() {
    loom::model(|| {
        let (table, mut writer) = table(ShardIndex(0), BOOT, 1);
        open(&mut writer, 1, FIRST_OWNER);
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let old = [table.look_up(&id(1), FIRST_OWNER), table.look_up(&id(1), FIRST_OWNER)];
                assert!(age(old[0], true) <= age(old[1], true), "went back in time: {old:?}");
                let new = [table.look_up(&id(2), SECOND_OWNER), table.look_up(&id(2), SECOND_OWNER)];
                assert!(new.iter().all(|answer| [UNKNOWN, Liveness::Live].contains(answer)), "never ended: {new:?}");
                assert!(age(new[0], false) <= age(new[1], false), "went back in time: {new:?}");
                if new[0] == Liveness::Live {
                    assert_eq!(table.look_up(&id(1), FIRST_OWNER), UNKNOWN, "two sessions in one slot");
                }
            })
        };
        writer.end(SlotIndex(0), Ended::Deleted);
        open(&mut writer, 2, SECOND_OWNER);
        reader.join().expect("the reader's assertions");
    });
}

/// The session of `SECOND_OWNER` replaces the first one's and ends, while `stranger` asks for the session that is not its own.
fn stranger_asks(nonce: u8, stranger: u64) {
    loom::model(move || {
        let (table, mut writer) = table(ShardIndex(0), BOOT, 1);
        open(&mut writer, 1, FIRST_OWNER);
        let reader = thread::spawn(move || assert_eq!(table.look_up(&id(nonce), stranger), UNKNOWN));
        writer.end(SlotIndex(0), Ended::Deleted);
        open(&mut writer, 2, SECOND_OWNER);
        writer.end(SlotIndex(0), Ended::Deleted);
        reader.join().expect("the reader's assertion");
    });
}

#[test]
fn the_former_owner_of_a_slot_learns_nothing_of_the_next_session() {
    stranger_asks(2, FIRST_OWNER);
}

#[test]
fn the_next_owner_of_a_slot_learns_nothing_of_the_former_session() {
    stranger_asks(1, SECOND_OWNER);
}

#[test]
fn a_session_that_ends_during_a_look_up_is_never_unknown_to_its_owner() {
    loom::model(|| {
        let (table, mut writer) = table(ShardIndex(0), BOOT, 1);
        open(&mut writer, 1, FIRST_OWNER);
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let answers = [table.look_up(&id(1), FIRST_OWNER), table.look_up(&id(1), FIRST_OWNER)];
                assert!(answers != [DELETED, Liveness::Live] && !answers.contains(&UNKNOWN), "{answers:?}");
            })
        };
        writer.end(SlotIndex(0), Ended::Deleted);
        assert_eq!(table.live(), 0);
        reader.join().expect("the reader's assertion");
    });
}
