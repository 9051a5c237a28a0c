//! Results of a made-up run, which the reports' tests read as well.

use std::time::{Duration, Instant, SystemTime};

use super::*;
use crate::storm::measure::{Live, Pace, Recorder, Timing};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn run() -> Run {
    Run {
        target: "http://user:secret@127.0.0.1:8931/mcp?token=secret".into(),
        script_name: "thundering-herd".into(),
        script_text: "[[phase]]\nname = \"storm\"\n".into(),
        seed: 7,
        threads: 2,
        sessions: 2000,
        pacing: Pacing::Open,
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000),
        duration: ms(4100),
        phases: vec![
            Phase { name: "ramp".into(), start_ms: 0, end_ms: 1500 },
            Phase { name: "storm".into(), start_ms: 1500, end_ms: 4100 },
        ],
        minimums: vec![Minimum { name: "sessions".into(), wanted: 100.0, reached: 120.0, unit: "sessions".into() }],
    }
}

/// Two threads, 4 s, a cut at 2 s, one violation when asked for.
pub(crate) fn measured(violated: bool) -> Measured {
    let origin = Instant::now();
    let mut finished = Vec::new();
    for live in Live::group(2) {
        let mut recorder = Recorder::new(origin, live);
        for nth in 0..400u64 {
            let at = origin + ms(nth * 10);
            let took = |ms: u64, us: u64| {
                Timing::scheduled(at, at + Duration::from_micros(20), at + Duration::from_micros(ms * 1000 + us))
            };
            if nth < 100 {
                recorder.connected(at);
                recorder.session_opened(at);
                recorder.latency(Metric::Connect, took(0, 90 + nth), Pace::Unpaced);
            } else if (200..300).contains(&nth) {
                recorder.cut(at);
                recorder.disconnected(at);
                recorder.connected(at);
                recorder.resume(at, nth % 10 > 0);
                recorder.verdict(at, if nth % 10 > 0 { "replay" } else { "tail" });
                recorder.latency(Metric::TimeToResume, took(nth % 50, 300), Pace::Open);
            }
            recorder.call(at);
            recorder.latency(Metric::Call, took(1, nth), Pace::Closed { every: ms(10) });
            recorder.events(at, 2);
            recorder.bytes_in(at, 500);
            if nth == 250 {
                recorder.error(at, ErrorKind::Reset);
            }
        }
        if violated {
            let violation =
                Violation { at_ms: 0, name: "gap".into(), text: "event 7 never came".into(), transcript: "GET /mcp".into() };
            recorder.violation(origin + ms(4000), violation);
        }
        finished.push(recorder.finish(origin + ms(4100)));
    }
    finished.into_iter().reduce(Measured::merge).expect("two")
}

pub(crate) fn results() -> Results {
    Results::new(run(), &measured(false))
}

#[test]
fn what_is_written_reads_back_equal() {
    let results = Results::new(run(), &measured(true));
    let text = serde_json::to_string(&results).expect("plain data");
    assert_eq!(Results::parse(&text).expect("our own"), results);
}

#[test]
fn the_file_has_no_credentials_and_no_name_of_the_machine() {
    let results = results();
    assert_eq!(results.target, "http://127.0.0.1:8931/mcp");
    assert!(results.environment.loopback);
    let text = serde_json::to_string(&results).expect("plain data");
    assert!(!text.contains("secret"));
    let host = rustix::system::uname();
    assert!(!text.contains(&format!("\"{}\"", host.nodename().to_string_lossy())));
}

#[test]
fn loopback_is_told_from_what_only_looks_like_it() {
    for (target, expected) in [
        ("http://localhost:1/mcp", true),
        ("https://[::1]:1", true),
        ("http://127.9.9.9", true),
        ("http://localhost.example", false),
        ("http://127.0.0.1.example/", false),
        ("http://example/127.0.0.1", false),
        ("127.0.0.1", false),
    ] {
        assert_eq!(is_loopback(target), expected, "{target}");
    }
}

#[test]
fn a_violation_or_a_minimum_not_reached_fails_the_run() {
    assert!(results().passed);
    assert!(!Results::new(run(), &measured(true)).passed);
    for reached in [99.9, f64::NAN, f64::NEG_INFINITY] {
        let mut run = run();
        run.minimums[0].reached = reached;
        assert!(!Results::new(run, &measured(false)).passed, "{reached}");
    }
}

#[test]
fn a_number_that_json_has_not_still_reads_back() {
    let mut run = run();
    (run.minimums[0].reached, run.minimums[0].wanted) = (f64::NAN, f64::INFINITY);
    let text = serde_json::to_string(&Results::new(run, &measured(false))).expect("plain data");
    assert!(!Results::parse(&text).expect("our own").minimums[0].met());
}

#[test]
fn percentiles_are_those_of_the_histogram_beside_them() {
    let results = results();
    let call = &results.latencies["call"].corrected;
    let histogram = call.histogram().expect("our own");
    assert_eq!(call.p99_us, histogram.value_at_quantile(0.99));
    assert_eq!((call.count, call.max_us), (histogram.len(), histogram.max()));
}

#[test]
fn what_was_measured_stands_beside_only_where_it_differs() {
    let results = results();
    assert!(results.latencies["time_to_resume"].as_measured.is_some());
    assert!(results.latencies["connect"].as_measured.is_none());
    assert!(!results.latencies.contains_key("delivery"));
}

#[test]
fn the_series_add_up_to_the_totals() {
    let results = results();
    assert_eq!(results.series.events.iter().sum::<u64>(), results.totals.events);
    assert_eq!(results.series.verdicts["replay"].iter().sum::<u64>(), results.verdicts["replay"]);
    assert_eq!(results.series.len(), 17);
    assert_eq!(results.series.span(16), (4.0, 0.1));
    assert_eq!(results.series.latencies["time_to_resume"].p50_us[0], None);
}

#[test]
fn a_peak_is_of_a_whole_second_however_wide_the_buckets() {
    let series = |width_ms| Series { width_ms, ..Series::default() };
    assert!((series(250).peak_rate(&[1, 1, 1, 5, 9, 0]) - 16.0).abs() < 1e-9);
    assert!((series(2000).peak_rate(&[1, 8, 2]) - 4.0).abs() < 1e-9);
    assert!(series(250).peak_rate(&[]).abs() < 1e-9);
}

#[test]
fn a_storm_that_could_not_keep_up_says_so_and_by_what() {
    assert!(!results().saturation.saturated);
    let origin = Instant::now();
    let late = |by: Duration| {
        let mut recorder = Recorder::new(origin, Live::group(1).remove(0));
        recorder.latency(Metric::Call, Timing::scheduled(origin, origin + by, origin + by), Pace::Open);
        Saturation::of(&recorder.finish(origin))
    };
    assert!(!late(LATE - ms(1)).saturated);
    assert!(late(LATE + ms(1)).reasons[0].contains("after its time"));
    let mut recorder = Recorder::new(origin, Live::group(1).remove(0));
    recorder.tick(origin, ms(0));
    recorder.tick(origin + ms(100), ms(100));
    recorder.error(origin, ErrorKind::LocalExhausted);
    let saturation = Saturation::of(&recorder.finish(origin));
    assert!(saturation.reasons[0].contains("no time to spare") && saturation.reasons[1].contains("descriptor"), "{saturation:?}");
}

fn parse_changed(change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut value = serde_json::to_value(results()).expect("plain data");
    change(&mut value);
    Results::parse(&value.to_string()).expect_err("refused").to_string()
}

#[test]
fn another_format_is_refused_whatever_else_it_says() {
    assert!(Results::parse(r#"{"format":2,"other":1}"#).expect_err("refused").to_string().contains("format 2"));
    assert!(Results::parse("{}").expect_err("refused").to_string().contains("format"));
    assert!(Results::parse("nonsense").is_err());
}

#[test]
fn results_that_cannot_be_are_refused_by_what_is_wrong() {
    assert!(parse_changed(|value| value["series"]["calls"] = serde_json::json!([1])).contains("column"));
    assert!(parse_changed(|value| value["series"]["width_ms"] = 0.into()).contains("width"));
    let many = vec![0; crate::storm::measure::BUCKETS_MAX + 1];
    assert!(parse_changed(|value| value["series"]["connects"] = many.into()).contains("buckets"));
    assert!(parse_changed(|value| value["latencies"]["call"]["histogram"] = "AAAA".into()).contains("latencies.call"));
    assert!(parse_changed(|value| value["latencies"]["call"]["count"] = 1.into()).contains("another count"));
}

#[test]
fn a_damaged_histogram_is_refused_or_read_but_never_a_panic() {
    let text = results().latencies["call"].corrected.clone();
    let whole = serde_json::to_value(&text).expect("plain data");
    let encoded = whole["histogram"].as_str().expect("text").to_owned();
    for at in 0..encoded.len() {
        for with in ["A", "/", "z"] {
            let mut damaged = encoded.clone();
            damaged.replace_range(at..=at, with);
            let mut value = whole.clone();
            value["histogram"] = damaged.into();
            let distribution: Distribution = serde_json::from_value(value).expect("the same shape");
            let _ = distribution.histogram();
        }
    }
}

#[test]
fn a_file_too_large_is_not_read_whole() {
    let path = std::env::temp_dir().join(format!("rejoin-results-{}", std::process::id()));
    File::create(&path).and_then(|file| file.set_len(FILE_BYTES_MAX + 1)).expect("a sparse file");
    let error = Results::read(&path).expect_err("refused");
    std::fs::remove_file(&path).expect("ours");
    assert!(matches!(error, ReadError::TooLarge), "{error}");
}
