//! A dead session id of a foreign shard: refused by what every shard can read, without an allocation.

use std::hint::black_box;

use rejoin_proto::ids::{Boot, Key, SessionId, ShardIndex};
use rejoin_proto::incarnations::{Liveness, Tables, table};
use rejoin_proto::refusal::Ended;

#[test]
fn a_dead_id_of_a_foreign_shard_is_refused_without_an_allocation() {
    let key = Key::new([5; 16]);
    let tag = key.principal_tag("somebody");
    let (own, _owner) = table(ShardIndex(0), Boot(1), 8);
    let (foreign, mut writer) = table(ShardIndex(1), Boot(1), 8);
    let tables = Tables::new(Boot(1), vec![own, foreign]);
    let mut begin = |nonce| {
        let slot = writer.reserve().expect("there are eight slots");
        let id = SessionId::mint(&key, ShardIndex(1), slot, Boot(1), [nonce; 16]);
        writer.publish(&id, tag);
        id
    };
    let (alive, dead) = (begin(1), begin(2));
    writer.end(dead.slot(), Ended::Deleted);
    let looked_up = |id: &SessionId| {
        let text = id.encode();
        let mut liveness = None;
        let allocated = allocation_counter::measure(|| {
            let id = SessionId::parse(black_box(text.as_str().as_bytes()), &key).expect("it is authentic");
            liveness = Some(tables.look_up(&id, tag));
        });
        assert_eq!(allocated.count_total, 0);
        liveness
    };
    assert_eq!(looked_up(&alive), Some(Liveness::Live));
    assert_eq!(looked_up(&dead), Some(Liveness::Ended(Ended::Deleted)));
}
