//! Time, turns and ends: nothing starves, and nothing outlives its shard.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rejoin_proto::shard::io::{Input, Output};

use super::harness::{drivers, start, told};
use crate::writer::WRITES_PER_TURN;

#[test]
fn the_kernel_is_told_the_time_when_it_asked_and_an_earlier_wish_replaces_a_later_one() {
    for driver in drivers() {
        let (tell, passed) = told();
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, now, out: &mut Vec<Output>| match input {
                Input::Opened { .. } => out.push(Output::WakeAt(now + Duration::from_secs(3_600))),
                Input::Received { .. } => out.push(Output::WakeAt(now + Duration::from_millis(50))),
                Input::TimePassed => tell.send(()).expect("the test listens"),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        assert!(passed.nothing_for(Duration::from_millis(80)));
        let began = Instant::now();
        stream.write_all(b"x").expect("write");
        passed.next();
        assert!(began.elapsed() >= Duration::from_millis(49), "{:?}", began.elapsed());
    }
}

#[test]
fn a_wish_that_moves_later_is_kept_at_its_last_instant() {
    for driver in drivers() {
        let (tell, passed) = told();
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, now, out: &mut Vec<Output>| match input {
                Input::Opened { .. } => {
                    out.push(Output::WakeAt(now + Duration::from_millis(30)));
                    out.push(Output::WakeAt(now + Duration::from_millis(150)));
                    tell.send(now).expect("the test listens");
                }
                Input::TimePassed => tell.send(now).expect("the test listens"),
                _ => {}
            })],
        );
        let _stream = shards.connect(0);
        let began = passed.next();
        assert!(passed.next().since(began) >= Duration::from_millis(150));
    }
}

#[test]
fn a_kernel_that_insists_on_a_past_instant_does_not_stop_the_shard() {
    for driver in drivers() {
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, now, out: &mut Vec<Output>| match input {
                Input::Opened { .. } => out.push(Output::WakeAt(now)),
                Input::Received { conn, .. } => out.push(Output::Send { conn, slices: vec![Bytes::from_static(b"y")] }),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(b"x").expect("write");
        stream.read_exact(&mut [0]).expect("read");
    }
}

#[test]
fn a_connection_that_could_write_for_ever_starves_no_timer_mail_or_other_connection() {
    const SEND: usize = 512 << 10;
    for driver in drivers() {
        let endless = Bytes::from(vec![7; SEND / 2]);
        let (tell, passed) = told();
        let mut unsent = 0;
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, now, out: &mut Vec<Output>| match input {
                Input::Received { conn, bytes: b"endless" } => {
                    unsent = SEND;
                    out.push(Output::Send { conn, slices: vec![endless.clone(); 2] });
                    out.push(Output::WakeAt(now + Duration::from_millis(100)));
                }
                Input::Received { conn, .. } => out.push(Output::Send { conn, slices: vec![Bytes::from_static(b"y")] }),
                // A send that is through is followed by another.
                Input::Sent { conn, bytes } if bytes > 1 => {
                    unsent -= bytes;
                    if unsent == 0 {
                        unsent = SEND;
                        out.push(Output::Send { conn, slices: vec![endless.clone(); 2] });
                    }
                }
                Input::TimePassed => tell.send(()).expect("the test listens"),
                _ => {}
            })],
        );
        let mut reader = shards.connect(0);
        reader.write_all(b"endless").expect("write");
        let reading = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(1) && reader.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
        passed.next();
        let mut other = shards.connect(0);
        for _ in 0..10 {
            other.write_all(b"x").expect("write");
            other.read_exact(&mut [0]).expect("read");
        }
        reading.join().expect("read");
    }
}

#[test]
fn what_is_said_to_many_lets_others_have_their_turn() {
    for driver in drivers() {
        let (tell, passed) = told();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (mut many, mut written) = (Vec::new(), 0);
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Received { conn, bytes: b"one of many" } => {
                    many.push(conn);
                    tell.send(many.len()).expect("the test listens");
                }
                Input::Received { bytes: b"all", .. } => {
                    out.extend(many.iter().map(|&conn| Output::Send { conn, slices: vec![Bytes::from_static(b"y")] }));
                }
                Input::Received { bytes: b"other", .. } => tell.send(written).expect("the test listens"),
                Input::Sent { .. } => {
                    written += 1;
                    if written == 1 {
                        tell.send(0).expect("the test listens");
                        is_ready.recv().expect("the test says");
                    }
                }
                _ => {}
            })],
        );
        let mut all = shards.connect(0);
        let mut other = shards.connect(0);
        let _many: Vec<_> = (1..=WRITES_PER_TURN + 1)
            .map(|number| {
                let mut one = shards.connect(0);
                one.write_all(b"one of many").expect("write");
                assert_eq!(passed.next(), number);
                one
            })
            .collect();
        all.write_all(b"all").expect("write");
        assert_eq!(passed.next(), 0);
        other.write_all(b"other").expect("write");
        ready.send(()).expect("the shard waits");
        assert_eq!(passed.next(), WRITES_PER_TURN);
    }
}

#[test]
fn a_shard_ends_with_its_open_connections() {
    for driver in drivers() {
        let shards = start(driver, vec![Box::new(|_: Input<'_>, _, _: &mut Vec<Output>| {})]);
        let mut streams: Vec<_> = (0..50).map(|_| shards.connect(0)).collect();
        std::thread::sleep(Duration::from_millis(50));
        // The harness checks that nothing of the shard is left.
        drop(shards);
        for stream in &mut streams {
            let ended = stream.read(&mut [0]);
            assert!(matches!(ended, Ok(0)) || super::harness::is_reset(&ended), "{ended:?}");
        }
    }
}

/// Names the driver that the child of the next test runs on.
const CHILD: &str = "REJOIN_TEST_DYING_SHARD";

#[test]
fn a_panic_of_the_kernel_ends_the_process_and_says_so() {
    let all = drivers();
    if let Some(driver) = std::env::var(CHILD).ok().and_then(|driver| driver.parse::<usize>().ok()) {
        let shards = start(
            all[driver],
            vec![
                Box::new(|_: Input<'_>, _, _: &mut Vec<Output>| {}),
                Box::new(|input: Input<'_>, _, _: &mut Vec<Output>| {
                    if let Input::Received { .. } = input {
                        panic!("a broken invariant");
                    }
                }),
            ],
        );
        shards.connect(1).write_all(b"x").expect("write");
        // Reached only if half of the shards went on without the other.
        std::thread::sleep(Duration::from_secs(5));
        return;
    }
    for driver in 0..all.len() {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "tests::turns::a_panic_of_the_kernel_ends_the_process_and_says_so", "--nocapture"]);
        command.env(CHILD, driver.to_string());
        let child = command.output().expect("a child");
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.code().is_none(), "ended by SIGABRT: {:?}", child.status);
        // The same where nobody can be told.
        let mut unheard = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a child");
        drop(unheard.stderr.take());
        let status = unheard.wait().expect("a child");
        assert!(status.code().is_none(), "ended by SIGABRT: {status:?}");
        assert!(said.contains("rejoin: a shard panicked (a broken invariant): the process ends"), "{said}");
    }
}

#[test]
fn no_descriptor_of_a_shard_is_inherited_by_children() {
    for driver in drivers() {
        let shards = start(driver, vec![super::handoffs::lines(0), super::handoffs::lines(1)]);
        let mut stream = shards.connect(0);
        for line in ["0 stays\n", "1 moves\n", "0 moves back\n"] {
            stream.write_all(line.as_bytes()).expect("write");
            stream.read_exact(&mut vec![0; line.len()]).expect("read");
        }
        let mut looked_at = 0;
        for entry in std::fs::read_dir("/proc/self/fd").expect("descriptors") {
            let entry = entry.expect("an entry");
            let kind = std::fs::read_link(entry.path()).map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
            if !["socket:", "anon_inode:"].iter().any(|ours| kind.starts_with(ours)) {
                continue;
            }
            let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy())) else {
                continue;
            };
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
            let flags = u32::from_str_radix(flags.trim(), 8).expect("octal");
            // O_CLOEXEC
            assert!(flags & 0o2_000_000 != 0, "{kind}");
            looked_at += 1;
        }
        assert!(looked_at > 8, "both shards have sockets, a ring or an epoll instance, and a waker");
    }
}

#[test]
fn thousands_of_connections_that_are_ready_at_once_are_all_served() {
    // More than a ring's completion queue holds (twice its 1,024 entries).
    const CONNECTIONS: usize = 3_000;
    for driver in drivers() {
        let shards = start(
            driver,
            vec![Box::new(|input: Input<'_>, _, out: &mut Vec<Output>| {
                if let Input::Received { conn, bytes } = input {
                    if bytes == b"pause" {
                        // The shard looks at nothing while all the others become ready.
                        std::thread::sleep(Duration::from_millis(300));
                    }
                    out.push(Output::Send { conn, slices: vec![Bytes::copy_from_slice(bytes)] });
                }
            })],
        );
        let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| shards.connect(0)).collect();
        for _ in 0..3 {
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.write_all(if number == 0 { b"pause" } else { b"burst" }).expect("write");
            }
            for stream in &mut streams {
                let mut back = [0; 5];
                stream.read_exact(&mut back).expect("read");
                assert!(&back == b"burst" || &back == b"pause");
            }
        }
    }
}
