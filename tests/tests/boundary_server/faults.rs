//! Every row on the correct server, and every fault against every row: it fails those that it is about, and no other.

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
        evicted, evicted_by_age, evicted_standalone, lost_result, overrun, cancelled_over_a_gap;
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

macro_rules! broken {
    ($($test:ident: $fault:ident fails $($must:ident),+ $(and may fail $($may:ident),+)?;)+) => {
        /// The faults that have a row below.
        const TOLD: &[Fault] = &[$(Fault::$fault),+];

        mod broken {
            $(
                #[test]
                fn $test() {
                    super::fails(rejoin_tests::boundary_server::Fault::$fault, &[$(stringify!($must)),+], &[$($(stringify!($may)),+)?]);
                }
            )+
        }
    };
}

// Without ids or ends hardly any row can be looked at: those two fail whatever needs them.
broken! {
    silent_gap: SilentGap fails foreign_cursor, evicted, evicted_by_age, lost_result, every_cut, live_after_replay,
        own_stream_only, burst, standalone_resumed, opening, unheard_result and may fail takeover;
    replays_from_start: ReplaysFromStart fails foreign_cursor, evicted, evicted_by_age, lost_result, every_cut,
        live_after_replay, own_stream_only, burst, standalone_resumed, takeover, unheard_result;
    repeats_cursor_event: RepeatsCursorEvent fails foreign_cursor, evicted, evicted_by_age, lost_result, every_cut,
        live_after_replay, own_stream_only, burst, standalone_resumed, takeover, unheard_result;
    reorders: Reorders fails evicted, every_cut, own_stream_only, burst, standalone_resumed, opening, unheard_result and may
        fail live_after_replay, takeover;
    restarts_ids: RestartsIds fails cancelled_over_a_gap, foreign_cursor, evicted, evicted_by_age, lost_result, every_cut,
        own_stream_only, burst, standalone_resumed, opening;
    mixes_streams: MixesStreams fails lost_result, own_stream_only;
    hangs_after_replay: HangsAfterReplay fails live_after_replay, burst, standalone_resumed, takeover;
    handover_gap: HandoverGap fails burst and may fail live_after_replay, standalone_resumed, takeover;
    handover_duplicates: HandoverDuplicates fails burst and may fail live_after_replay, standalone_resumed, takeover;
    second_result: SecondResult fails cancelled_over_a_gap, foreign_cursor, evicted, evicted_by_age, lost_result, every_cut,
        own_stream_only, opening, unheard_result and may fail live_after_replay, burst, takeover;
    leaks_foreign_stream: LeaksForeignStream fails foreign_cursor;
    garbage_cursor_new_stream: GarbageCursorNewStream fails garbage_cursor;
    accepts_future_cursor: AcceptsFutureCursor fails future_cursor, lost_tail;
    accepts_empty_cursor: AcceptsEmptyCursor fails empty_cursor;
    accepts_doubled_cursor: AcceptsDoubledCursor fails doubled_cursor;
    ignores_incarnation: IgnoresIncarnation fails incarnation;
    evicts_silently: EvictsSilently fails evicted, evicted_by_age, evicted_standalone, lost_result, cancelled_over_a_gap;
    resync_not_first: ResyncNotFirst fails cancelled_over_a_gap, evicted, evicted_by_age, evicted_standalone, lost_result;
    resync_does_not_move: ResyncDoesNotMove fails evicted;
    ends_with_resync: EndsWithResync fails lost_result;
    overruns_silently: OverrunsSilently fails overrun;
    forgets_unheard: ForgetsUnheard fails evicted_standalone, unheard_standalone;
    dead_session_new_stream: DeadSessionNewStream fails principals, unknown_session, expired_session, deleted_session,
        lost_tail;
    dead_session_400: DeadSession400 fails principals, unknown_session, expired_session, deleted_session, restarted,
        lost_tail, refused_before_it_runs;
    deleted_session_lives: DeletedSessionLives fails deleted_session;
    adopts_after_restart: AdoptsAfterRestart fails restarted;
    session_not_required: SessionNotRequired fails session_required;
    loses_unheard_result: LosesUnheardResult fails unheard_result;
    disconnect_cancels: DisconnectCancels fails in_use_is_not_expired, burst, unheard_result and may fail live_after_replay,
        resume_runs_nothing;
    repost_executes_again: RepostExecutesAgain fails incarnation, lost_result, repost, cancelled;
    resume_executes_again: ResumeExecutesAgain fails resume_runs_nothing;
    routes_by_id: RoutesById fails one_id_twice;
    ignores_idempotency_key: IgnoresIdempotencyKey fails idempotency;
    finished_stream_hangs: FinishedStreamHangs fails cancelled_over_a_gap, finished, cancelled;
    finished_stream_empty: FinishedStreamEmpty fails cancelled_over_a_gap, finished, cancelled;
    stays_open_after_result: StaysOpenAfterResult fails cancelled_over_a_gap, principals, expired_session, restarted,
        never_cached, doubled_cursor, garbage_cursor, foreign_cursor, forged_cursor, lost_tail, incarnation, forgotten,
        evicted, evicted_by_age, evicted_standalone, lost_result, overrun, finished, every_cut, live_after_replay,
        own_stream_only, burst, unheard_standalone, standalone_resumed, ends_after_result, takeover, opening, ids,
        unheard_result, repost, one_id_twice, idempotency, cancelled, refused_before_it_runs;
    refuses_takeover: RefusesTakeover fails standalone_resumed, takeover, takeovers_in_turn and may fail accept, revision,
        resume_runs_nothing, burst;
    old_connection_keeps_events: OldConnectionKeepsEvents fails standalone_resumed, takeover, takeovers_in_turn and may fail
        burst, resume_runs_nothing;
    stalls_neighbours: StallsNeighbours fails stalled_neighbour;
    no_ids: NoIds fails idempotency, cancelled_over_a_gap, principals, expired_session, restarted, doubled_cursor, garbage_cursor,
        foreign_cursor, forged_cursor, future_cursor, lost_tail, incarnation, forgotten, evicted, evicted_by_age,
        evicted_standalone, lost_result, overrun, finished, every_cut, live_after_replay, own_stream_only, burst,
        standalone_resumed, ends_after_result, takeover, opening, ids, unheard_result, repost, resume_runs_nothing,
        one_id_twice, cancelled, refused_before_it_runs;
    no_opening_event: NoOpeningEvent fails opening;
    accepts_foreign_origin: AcceptsForeignOrigin fails origin;
    accepts_foreign_host: AcceptsForeignHost fails host;
    ignores_principal: IgnoresPrincipal fails principals;
    no_preflight: NoPreflight fails preflight;
    cacheable: Cacheable fails never_cached;
}

#[test]
fn no_fault_is_left_out() {
    assert_eq!(TOLD, Fault::ALL);
}
