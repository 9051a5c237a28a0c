//! Behaviour of one thread's look-ups, and a race of real threads beside loom's model.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ids::Key;

const KEY: Key = Key::new([3; 16]);
const SHARD: ShardIndex = ShardIndex(2);
const BOOT: Boot = Boot(77);
const OWNER: u64 = 1001;
const STRANGER: u64 = 1002;
const UNKNOWN: Liveness = Liveness::Ended(Ended::Unknown);
const REMEMBERED: [Ended; 5] = [Ended::Expired, Ended::Deleted, Ended::Closed, Ended::Shed, Ended::Lineage];

fn id(slot: SlotIndex, nonce: u64) -> SessionId {
    minted(SHARD, slot, BOOT, nonce)
}

fn minted(shard: ShardIndex, slot: SlotIndex, boot: Boot, nonce: u64) -> SessionId {
    let spread = nonce.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    SessionId::mint(&KEY, shard, slot, boot, (u128::from(spread) << 64 | u128::from(nonce)).to_be_bytes())
}

fn open(writer: &mut Writer, nonce: u64, principal_tag: u64) -> SessionId {
    let id = id(writer.reserve().expect("a slot is free"), nonce);
    writer.publish(&id, principal_tag);
    id
}

#[test]
fn an_ended_session_says_why_until_its_slot_is_used_again() {
    for why in REMEMBERED {
        let (table, mut writer) = table(SHARD, BOOT, 1);
        let old = open(&mut writer, 1, OWNER);
        assert_eq!(table.look_up(&old, OWNER), Liveness::Live);
        writer.end(old.slot(), why);
        assert_eq!(table.look_up(&old, OWNER), Liveness::Ended(why));

        let slot = writer.reserve().expect("the ended slot");
        assert_eq!(table.look_up(&old, OWNER), Liveness::Ended(why), "a reserved slot still remembers");
        let new = id(slot, 2);
        writer.publish(&new, OWNER);
        assert_eq!((table.look_up(&old, OWNER), table.look_up(&new, OWNER)), (UNKNOWN, Liveness::Live));
    }
}

#[test]
fn another_principals_session_is_unknown_alive_and_ended() {
    let (table, mut writer) = table(SHARD, BOOT, 4);
    let session = open(&mut writer, 1, OWNER);
    assert_eq!(table.look_up(&session, STRANGER), UNKNOWN);
    assert_eq!(table.look_up(&session, 0), UNKNOWN, "no principal is not every principal");
    writer.end(session.slot(), Ended::Deleted);
    assert_eq!(table.look_up(&session, STRANGER), UNKNOWN);
    assert_eq!(table.look_up(&session, OWNER), Liveness::Ended(Ended::Deleted));
}

#[test]
fn the_first_end_counts() {
    let (table, mut writer) = table(SHARD, BOOT, 2);
    let session = open(&mut writer, 1, OWNER);
    writer.end(session.slot(), Ended::Deleted);
    writer.end(session.slot(), Ended::Expired);
    writer.end(SlotIndex(1), Ended::Expired);
    writer.end(SlotIndex(9), Ended::Expired);
    assert_eq!(table.look_up(&session, OWNER), Liveness::Ended(Ended::Deleted));
    assert_eq!(table.live(), 0);
    let slots = [writer.reserve(), writer.reserve(), writer.reserve()];
    assert_eq!(slots, [Some(SlotIndex(1)), Some(SlotIndex(0)), None], "a slot ended twice is handed out once");
}

#[test]
fn a_failed_initialize_leaves_no_session_and_no_hole() {
    let (table, mut writer) = table(SHARD, BOOT, 2);
    let remembered = open(&mut writer, 1, OWNER);
    writer.end(remembered.slot(), Ended::Expired);
    let failed = open(&mut writer, 2, OWNER);
    writer.end(failed.slot(), Ended::Unknown);
    assert_eq!(table.look_up(&failed, OWNER), UNKNOWN);

    let slot = writer.reserve();
    assert_eq!(slot, Some(failed.slot()), "a slot without a memory goes before one with");
    writer.release(failed.slot());
    writer.release(failed.slot());
    assert_eq!([writer.reserve(), writer.reserve(), writer.reserve()], [slot, Some(remembered.slot()), None]);
    writer.release(remembered.slot());
    assert_eq!(table.look_up(&remembered, OWNER), Liveness::Ended(Ended::Expired), "a released slot remembers what it did");
}

#[test]
fn an_id_of_another_boot_is_restarted_and_of_no_slot_or_shard_unknown() {
    let (own, mut writer) = table(SHARD, BOOT, 2);
    let session = open(&mut writer, 1, OWNER);
    let tables = Tables::new(BOOT, vec![table(ShardIndex(0), BOOT, 1).0, table(ShardIndex(1), BOOT, 1).0, Arc::clone(&own)]);
    let cases = [
        (session, Liveness::Live),
        (minted(SHARD, SlotIndex(0), Boot(78), 1), Liveness::Ended(Ended::Restarted)),
        (minted(ShardIndex(9), SlotIndex(9), Boot(78), 1), Liveness::Ended(Ended::Restarted)),
        (minted(ShardIndex(1), SlotIndex(0), BOOT, 1), UNKNOWN),
        (minted(ShardIndex(3), SlotIndex(0), BOOT, 1), UNKNOWN),
        (id(SlotIndex(1), 1), UNKNOWN),
        (id(SlotIndex(2), 1), UNKNOWN),
        (id(SlotIndex(u32::MAX), 1), UNKNOWN),
    ];
    for (id, expected) in cases {
        assert_eq!((own.look_up(&id, OWNER), tables.look_up(&id, OWNER)), (expected, expected), "{id:?}");
    }
}

#[test]
fn a_name_of_zeros_is_not_found_in_a_vacant_slot() {
    let (table, mut writer) = table(SHARD, BOOT, 2);
    let zeros = id(writer.reserve().expect("a slot is free"), 0);
    assert_eq!(table.look_up(&zeros, 0), UNKNOWN);
    writer.publish(&zeros, 0);
    assert_eq!(table.look_up(&zeros, 0), Liveness::Live);
}

#[test]
fn a_new_session_goes_where_the_fewest_live() {
    let (first, mut writer) = table(ShardIndex(0), BOOT, 4);
    let (second, _) = table(ShardIndex(1), BOOT, 4);
    let tables = Tables::new(BOOT, vec![first, second]);
    assert_eq!(tables.least_loaded(ShardIndex(0)), ShardIndex(0));
    assert_eq!(tables.least_loaded(ShardIndex(1)), ShardIndex(1), "the nearest of equals");
    let id = minted(ShardIndex(0), writer.reserve().expect("a slot is free"), BOOT, 1);
    writer.publish(&id, 0);
    assert_eq!(tables.least_loaded(ShardIndex(0)), ShardIndex(1));
    writer.end(id.slot(), Ended::Closed);
    assert_eq!(tables.least_loaded(ShardIndex(0)), ShardIndex(0));
}

#[test]
fn the_count_shares_no_cache_line_with_slots_or_fields() {
    assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (16, 16));
    assert_eq!(std::mem::offset_of!(Table, live) % 128, 0);
    assert_eq!(size_of::<LiveCount>(), 128);
}

#[test]
fn a_reader_on_another_thread_sees_only_what_was_true() {
    let rounds: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let (table, mut writer) = table(SHARD, BOOT, 2);
    std::thread::scope(|scope| {
        for principal in [OWNER, STRANGER] {
            let table = Arc::clone(&table);
            scope.spawn(move || {
                for nonce in 1..=rounds {
                    for slot in [SlotIndex(0), SlotIndex(1)] {
                        let owned = nonce % 2 == principal % 2;
                        match table.look_up(&id(slot, nonce), principal) {
                            Liveness::Live | Liveness::Ended(Ended::Deleted) => assert!(owned, "{principal} saw {nonce}"),
                            answer => assert_eq!(answer, UNKNOWN),
                        }
                    }
                }
            });
        }
        for nonce in 1..=rounds {
            let principal = if nonce % 2 == OWNER % 2 { OWNER } else { STRANGER };
            let session = open(&mut writer, nonce, principal);
            writer.end(session.slot(), Ended::Deleted);
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Reserve,
    Release(usize),
    Publish(usize, bool),
    End(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Reserve),
        1 => any::<usize>().prop_map(Step::Release),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, stranger)| Step::Publish(which, stranger)),
        3 => (any::<usize>(), 0..REMEMBERED.len()).prop_map(|(which, why)| Step::End(which, why)),
    ]
}

proptest! {
    /// The oracle keeps every session for ever, and the slots' order as a plain list.
    #[test]
    fn every_id_ever_minted_gets_the_answer_of_an_oracle(slots in 0u32..6, steps in prop::collection::vec(step(), 0..80)) {
        let (table, mut writer) = table(SHARD, BOOT, slots);
        let (mut never_used, mut used) = ((0..slots).map(SlotIndex), Vec::new());
        let (mut reserved, mut live): (Vec<SlotIndex>, Vec<SessionId>) = (Vec::new(), Vec::new());
        let mut all: HashMap<SessionId, (u64, Liveness)> = HashMap::new();
        for step in steps {
            match step {
                Step::Reserve => {
                    let expected = never_used.next().or_else(|| if used.is_empty() { None } else { Some(used.remove(0)) });
                    prop_assert_eq!(writer.reserve(), expected);
                    reserved.extend(expected);
                }
                Step::Release(which) if !reserved.is_empty() => {
                    let slot = reserved.remove(which % reserved.len());
                    writer.release(slot);
                    used.insert(0, slot);
                }
                Step::Publish(which, stranger) if !reserved.is_empty() => {
                    let slot = reserved.remove(which % reserved.len());
                    let id = id(slot, all.len() as u64 + 1);
                    let principal = if stranger { STRANGER } else { OWNER };
                    writer.publish(&id, principal);
                    all.iter_mut().filter(|(old, _)| old.slot() == slot).for_each(|(_, (_, state))| *state = UNKNOWN);
                    all.insert(id, (principal, Liveness::Live));
                    live.push(id);
                }
                Step::End(which, why) if !live.is_empty() => {
                    let id = live.remove(which % live.len());
                    writer.end(id.slot(), REMEMBERED[why]);
                    all.insert(id, (all[&id].0, Liveness::Ended(REMEMBERED[why])));
                    used.push(id.slot());
                }
                _ => {}
            }
            prop_assert_eq!(table.live() as usize, live.len());
            for (id, (owner, state)) in &all {
                for asking in [OWNER, STRANGER] {
                    prop_assert_eq!(table.look_up(id, asking), if asking == *owner { *state } else { UNKNOWN });
                }
            }
        }
    }
}
