//! What recorders say, alone and together.

use std::io;
use std::time::{Duration, Instant};

use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn recorders(threads: usize) -> (Instant, Vec<Recorder>) {
    let origin = Instant::now();
    (origin, Live::group(threads).into_iter().map(|live| Recorder::new(origin, live)).collect())
}

fn one() -> (Instant, Recorder) {
    let (origin, mut recorders) = recorders(1);
    (origin, recorders.pop().expect("one was made"))
}

/// Something that ended at this moment.
fn took(duration: Duration, at: Instant) -> Timing {
    Timing::unscheduled(at.checked_sub(duration).expect("the machine has run for longer"), at)
}

fn violation(name: &str) -> Violation {
    Violation { at_ms: 0, name: name.into(), text: "t".into(), transcript: "GET /".into() }
}

#[test]
fn an_open_loop_counts_from_the_intended_beginning_and_keeps_what_was_measured() {
    let (t0, mut recorder) = one();
    recorder.latency(Metric::Call, Timing::scheduled(t0, t0 + ms(900), t0 + ms(1000)), Pace::Open);
    let measured = recorder.finish(t0 + ms(1000));
    let call = measured.latencies(Metric::Call);
    assert!(call.corrected().equivalent(call.corrected().max(), 1_000_000));
    assert!(call.measured().equivalent(call.measured().max(), 100_000));
    assert!(measured.lag().corrected().equivalent(measured.lag().corrected().max(), 900_000));
}

#[test]
fn a_closed_loop_makes_up_for_a_stall_and_has_no_lag() {
    let (t0, mut recorder) = one();
    recorder.latency(Metric::Call, Timing::unscheduled(t0, t0 + ms(1000)), Pace::Closed { every: ms(100) });
    let measured = recorder.finish(t0 + ms(1000));
    let call = measured.latencies(Metric::Call);
    assert_eq!((call.corrected().len(), call.measured().len()), (10, 1));
    assert_eq!(measured.lag().corrected().len(), 0);
}

#[test]
fn time_that_runs_backwards_measures_zero() {
    let (t0, mut recorder) = one();
    recorder.latency(Metric::Delivery, Timing::unscheduled(t0 + ms(5), t0), Pace::Unpaced);
    assert_eq!(recorder.finish(t0).latencies(Metric::Delivery).corrected().max(), 0);
}

#[test]
fn counts_stand_in_the_bucket_of_their_moment_and_in_the_total() {
    let (t0, mut recorder) = one();
    recorder.events(t0, 3);
    recorder.events(t0 + ms(250), 4);
    recorder.bytes_in(t0 + ms(500), 7);
    recorder.bytes_out(t0 + ms(500), 9);
    // Late: counts for the latest bucket.
    recorder.cut(t0);
    let measured = recorder.finish(t0 + ms(999));
    let events: Vec<_> = measured.series().buckets().iter().map(|bucket| bucket.flows.events).collect();
    assert_eq!(events, [3, 4, 0, 0]);
    assert_eq!(measured.series().buckets()[2].flows.cuts, 1);
    assert_eq!(
        (measured.flows().events, measured.flows().bytes_in, measured.flows().bytes_out, measured.flows().cuts),
        (7, 7, 9, 1)
    );
    assert_eq!(measured.series().end(), ms(999));
}

#[test]
fn levels_last_through_silence_and_a_dip_within_a_bucket_shows() {
    let (t0, mut recorder) = one();
    for _ in 0..5 {
        recorder.connected(t0);
    }
    recorder.tick(t0 + ms(600), Duration::ZERO);
    recorder.disconnected(t0 + ms(610));
    recorder.disconnected(t0 + ms(620));
    recorder.connected(t0 + ms(630));
    let measured = recorder.finish(t0 + ms(700));
    let levels: Vec<_> = measured.series().buckets().iter().map(|bucket| bucket.connections).collect();
    let five = Gauge { low: 5, high: 5, last: 5 };
    assert_eq!(levels, [Gauge { low: 0, high: 5, last: 5 }, five, Gauge { low: 3, high: 5, last: 4 }]);
}

#[test]
fn a_long_run_has_wider_buckets_not_more_and_loses_nothing() {
    let (t0, mut recorder) = one();
    let spacing = ms(100);
    let count = 20_000u32;
    for nth in 0..count {
        let at = t0 + spacing * nth;
        recorder.events(at, 1);
        recorder.verdict(at, if nth % 2 == 0 { "tail" } else { "replay" });
        recorder.latency(Metric::Delivery, took(ms(u64::from(nth % 50)), at), Pace::Unpaced);
    }
    let measured = recorder.finish(t0 + spacing * count);
    let series = measured.series();
    assert!(series.buckets().len() <= series::BUCKETS_MAX);
    assert!(series.buckets().len() > series::BUCKETS_MAX / 2);
    assert_eq!(series.width(), ms(8000));
    assert_eq!(series.buckets().iter().map(|bucket| bucket.flows.events).sum::<u64>(), u64::from(count));
    assert_eq!(series.buckets().iter().map(|bucket| bucket.verdicts.iter().sum::<u64>()).sum::<u64>(), u64::from(count));
    let spread = series.buckets()[3].latencies.get(Metric::Delivery);
    assert_eq!(spread.count(), 80);
    assert_eq!(spread.max(), 49_000);
    let median = spread.quantile(0.5).expect("some were recorded");
    // 0 to 19 and 40 to 49 came twice, the others once.
    assert!((19_000..19_200).contains(&median), "{median}");
}

#[test]
fn a_moment_far_away_costs_no_memory() {
    let (t0, mut recorder) = one();
    recorder.events(t0 + Duration::from_secs(10 * 365 * 86_400), 1);
    assert!(recorder.measured.series.buckets().len() <= series::BUCKETS_MAX);
}

#[test]
fn threads_together_say_what_one_thread_would_have_said() {
    let (t0, mut recorders) = recorders(3);
    let (_, mut alone) = one();
    alone.measured.origin = t0;
    alone.measured.series = Series::new(t0);
    for nth in 0..3000u64 {
        let at = t0 + ms(nth);
        let thread = usize::try_from(nth % 3).expect("small");
        for recorder in [&mut recorders[thread], &mut alone] {
            recorder.verdict(at, ["resync", "tail", "replay", "http_503"][usize::try_from(nth % 4).expect("small")]);
            recorder.error(at, ErrorKind::ALL[usize::try_from(nth % 10).expect("small")]);
            recorder.latency(Metric::Connect, took(ms(nth % 40), at), Pace::Closed { every: ms(10) });
            recorder.connected(at);
        }
    }
    let end = t0 + ms(3100);
    let (alone, mut together) = (alone.finish(end), recorders.into_iter().map(|recorder| recorder.finish(end)));
    let first = together.next().expect("three");
    let together = together.fold(first, Measured::merge);
    assert_eq!(together.latencies(Metric::Connect).corrected(), alone.latencies(Metric::Connect).corrected());
    assert_eq!(together.flows(), alone.flows());
    assert_eq!((together.peak_connections(), alone.peak_connections()), (3000, 3000));
    for kind in ["tail", "replay", "resync", "http_503"] {
        assert_eq!(together.verdicts().get(kind), alone.verdicts().get(kind), "{kind}");
        let at = |measured: &Measured, bucket: &Bucket| {
            let index = measured.verdicts().iter().position(|(known, _)| known == kind).expect("it came");
            bucket.verdicts.get(index).copied().unwrap_or(0)
        };
        for (ours, theirs) in together.series().buckets().iter().zip(alone.series().buckets()) {
            assert_eq!(at(&together, ours), at(&alone, theirs), "{kind}");
            assert_eq!(ours.latencies.get(Metric::Connect), theirs.latencies.get(Metric::Connect));
            assert_eq!(ours.connections.last, theirs.connections.last);
        }
    }
}

#[test]
fn a_short_and_a_long_thread_are_added_at_the_wider_buckets() {
    let (t0, mut recorders) = recorders(2);
    let mut long = recorders.pop().expect("two");
    let mut short = recorders.pop().expect("two");
    short.connected(t0);
    long.connected(t0);
    long.events(t0 + Duration::from_secs(200), 1);
    let measured = short.finish(t0 + ms(1200)).merge(long.finish(t0 + Duration::from_secs(200)));
    assert_eq!(measured.series().width(), ms(500));
    assert_eq!(measured.series().buckets().last().map(|bucket| bucket.connections.last), Some(2));
}

#[test]
fn violations_are_all_counted_and_the_first_ones_kept() {
    let (t0, recorders) = recorders(5);
    let finished = recorders.into_iter().enumerate().map(|(thread, mut recorder)| {
        for nth in 0..VIOLATIONS_OF_A_THREAD as u64 + 4 {
            recorder.violation(t0 + ms(nth * 10 + thread as u64), violation("gap"));
        }
        recorder.finish(t0 + ms(500))
    });
    let measured = finished.reduce(Measured::merge).expect("five");
    assert_eq!(measured.violations_by_name().get("gap"), 100);
    assert_eq!(measured.violations().len(), VIOLATIONS_MAX);
    assert_eq!(measured.violations()[1].at_ms, 1);
    assert!(measured.violations().is_sorted_by_key(|violation| violation.at_ms));
}

#[test]
fn a_long_transcript_is_kept_from_its_beginning() {
    let (t0, mut recorder) = one();
    recorder.violation(t0, Violation { transcript: "é".repeat(TRANSCRIPT_BYTES_MAX), ..violation("twice") });
    let measured = recorder.finish(t0);
    let kept = &measured.violations()[0].transcript;
    assert!(kept.len() <= TRANSCRIPT_BYTES_MAX + '…'.len_utf8() && kept.starts_with("éé") && kept.ends_with('…'));
}

#[test]
fn a_thread_without_time_to_spare_is_found_out() {
    let (t0, mut recorder) = one();
    recorder.tick(t0, ms(0));
    recorder.tick(t0 + ms(100), ms(95));
    recorder.tick(t0 + ms(200), ms(120));
    assert!((recorder.finish(t0 + ms(200)).busiest() - 0.5).abs() < 1e-9);
}

#[test]
fn the_cpu_time_of_a_thread_grows_with_its_work() {
    let before = thread_cpu_time();
    while thread_cpu_time() < before + ms(2) {}
    assert!(thread_cpu_time() > before);
}

#[test]
fn progress_sees_what_threads_do_and_the_slowest_since_it_looked() {
    let origin = Instant::now();
    let live = Live::group(2);
    let mut recorders: Vec<_> = live.iter().map(|live| Recorder::new(origin, Arc::clone(live))).collect();
    for recorder in &mut recorders {
        recorder.connected(origin);
        recorder.session_opened(origin);
        recorder.events(origin, 5);
        recorder.verdict(origin, "tail");
        recorder.latency(Metric::TimeToResume, Timing::unscheduled(origin, origin + ms(30)), Pace::Unpaced);
    }
    let snapshot = Snapshot::take(&live);
    assert_eq!((snapshot.connections, snapshot.sessions, snapshot.events, snapshot.verdicts), (2, 2, 10, 2));
    assert_eq!(snapshot.slowest, ms(30));
    recorders[0].disconnected(origin);
    recorders[0].disconnected(origin);
    recorders[0].disconnected(origin);
    recorders[0].session_ended(origin);
    let snapshot = Snapshot::take(&live);
    assert_eq!((snapshot.connections, snapshot.sessions, snapshot.slowest), (0, 1, Duration::ZERO));
}

#[test]
fn errors_of_sockets_are_told_apart() {
    let errno = |errno: rustix::io::Errno| io::Error::from(errno);
    use rustix::io::Errno;
    assert_eq!(ErrorKind::of_connect(&errno(Errno::CONNREFUSED)), ErrorKind::ConnectRefused);
    assert_eq!(ErrorKind::of_connect(&errno(Errno::TIMEDOUT)), ErrorKind::ConnectTimeout);
    assert_eq!(ErrorKind::of_connect(&errno(Errno::HOSTUNREACH)), ErrorKind::ConnectFailed);
    for exhausted in [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS] {
        assert_eq!(ErrorKind::of_connect(&errno(exhausted)), ErrorKind::LocalExhausted);
    }
    assert_eq!(ErrorKind::of(&errno(Errno::CONNRESET)), ErrorKind::Reset);
    assert_eq!(ErrorKind::of(&errno(Errno::PIPE)), ErrorKind::Reset);
    assert_eq!(ErrorKind::of(&io::ErrorKind::UnexpectedEof.into()), ErrorKind::ClosedEarly);
    assert_eq!(ErrorKind::of(&errno(Errno::INVAL)), ErrorKind::Io);
}
