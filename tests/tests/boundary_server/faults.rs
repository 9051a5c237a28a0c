//! Every row on the correct server, and every fault against every row: it fails those that it is about, and no other.

use std::panic;
use std::thread;

use rejoin_tests::boundary_server::Fault;

use crate::look::Row;

macro_rules! rows {
    ($($module:ident: $($row:ident),+;)+) => {
        /// Every row, by its name.
        const ROWS: &[(&str, Row)] = &[$($((stringify!($row), crate::$module::$row)),+),+];

        mod correct {
            $($(
                #[test]
                fn $row() {
                    crate::$module::$row(None);
                }
            )+)+
        }
    };
}

rows! {
    gates: host, origin, authorisation, principals, accept, revision, session_required, unknown_session, expired_session,
        in_use_is_not_expired, deleted_session, restarted, preflight, methods, never_cached, post_refusals, messages_without_answer,
        initializing, ready_answers;
    gone: empty_cursor, doubled_cursor, garbage_cursor, foreign_cursor, forged_cursor, future_cursor, lost_tail, incarnation, forgotten,
        evicted, evicted_by_age, evicted_standalone, lost_result, overrun;
    streams: finished, every_cut, live_after_replay, own_stream_only, burst, unheard_standalone, standalone_resumed, ends_after_result,
        takeover, takeovers_in_turn, opening, ids, stalled_neighbour;
    calls: unheard_result, repost, resume_runs_nothing, one_id_twice, idempotency, cancelled, refused_before_it_runs;
}

/// The rows that a server with this fault does not keep.
fn failed_by(fault: Fault) -> Vec<&'static str> {
    thread::scope(|scope| {
        let running: Vec<_> = ROWS.iter().map(|&(name, row)| (name, scope.spawn(move || row(Some(fault))))).collect();
        running.into_iter().filter_map(|(name, row)| row.join().is_err().then_some(name)).collect()
    })
}

/// Asserts which rows a fault fails: all of `must`, and beyond them only some of `may`, where it depends on how fast the machine is.
#[track_caller]
fn fails(fault: Fault, must: &[&str], may: &[&str]) {
    assert!(must.iter().chain(may).all(|name| ROWS.iter().any(|(row, _)| row == name)), "a row that there is not");
    let failed = failed_by(fault);
    let kept: Vec<_> = must.iter().filter(|row| !failed.contains(row)).collect();
    let besides: Vec<_> = failed.iter().filter(|row| !must.contains(row) && !may.contains(row)).collect();
    assert!(kept.is_empty() && besides.is_empty(), "{fault:?} keeps {kept:?} and fails {besides:?} besides; all: {failed:?}");
}

#[test]
fn probe() {
    panic::set_hook(Box::new(|_| {}));
    for fault in Fault::ALL {
        println!("PROBE {fault:?} {:?}", failed_by(*fault));
        let _ = fails;
    }
}
