//! Keys under chance: three shards, both eras, mail that comes late and out of step, clients that leave, handlers that refuse, sessions that
//! end; and what must hold all the same.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::exchanges::Modern;
use super::*;
use crate::keyed::Mail;

const SHARDS: u8 = 3;
const KEYS: u8 = 4;

/// One step of a run; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Present { shard: u8, key: u8, session: bool },
    Carry { which: u8 },
    Leave { which: u8 },
    Answer { which: u8 },
    Refuse { which: u8 },
    Delete { shard: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..SHARDS, 0..KEYS, any::<bool>()).prop_map(|(shard, key, session)| Step::Present { shard, key, session }),
        8 => any::<u8>().prop_map(|which| Step::Carry { which }),
        2 => any::<u8>().prop_map(|which| Step::Leave { which }),
        3 => any::<u8>().prop_map(|which| Step::Answer { which }),
        1 => any::<u8>().prop_map(|which| Step::Refuse { which }),
        1 => (0..SHARDS).prop_map(|shard| Step::Delete { shard }),
    ];
    prop::collection::vec(step, 1..120)
}

/// A request that was sent.
struct Asked {
    shard: usize,
    conn: ConnId,
    key: u8,
    id: String,
    session: bool,
    left: bool,
}

struct Storm {
    shards: Vec<Bench>,
    sessions: Vec<SessionId>,
    /// Between two shards mail is in order.
    mail: BTreeMap<(usize, usize), Vec<Mail>>,
    asked: Vec<Asked>,
    /// Calls that run: shard, session, call, key.
    running: Vec<(usize, SessionId, CallId, u8)>,
    /// What each key's execution came to; one that was refused for want of room is none.
    came_to: HashMap<u8, String>,
    executions: HashMap<u8, u32>,
}

impl Storm {
    fn new() -> Self {
        let mut shards: Vec<_> = (0..SHARDS)
            .map(|index| {
                Bench::new(|config| {
                    config.shard = ShardIndex(index);
                    config.shards = SHARDS.into();
                })
            })
            .collect();
        let sessions = shards.iter_mut().map(Bench::session_anywhere).collect();
        let (mail, asked, running) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { shards, sessions, mail, asked, running, came_to: HashMap::new(), executions: HashMap::new() }
    }

    /// What a step left behind: mail to carry, calls to run, calls that are over.
    fn collect(&mut self, shard: usize) {
        for (to, mail) in std::mem::take(&mut self.shards[shard].posted) {
            self.mail.entry((shard, usize::from(to.0))).or_default().push(mail);
        }
        for (session, delivery) in std::mem::take(&mut self.shards[shard].deliveries) {
            match delivery {
                Delivery::Request { call, params: Some(params), .. } | Delivery::Exchange { call, params, .. } => {
                    let text = String::from_utf8(params.to_vec()).expect("text");
                    let key = text.split("\"key\":").nth(1).and_then(|rest| rest[..1].parse().ok()).expect("a key");
                    *self.executions.entry(key).or_default() += 1;
                    self.running.push((shard, session, call, key));
                }
                Delivery::Cancelled { call, .. } => self.over(shard, call),
                _ => {}
            }
        }
    }

    /// A call that ran is cancelled: nobody knows what became of it.
    fn over(&mut self, shard: usize, call: CallId) {
        let index = self.running.iter().position(|one| (one.0, one.2) == (shard, call)).expect("only what runs is cancelled");
        let key = self.running.remove(index).3;
        self.came_to.insert(key, "-32010".into());
    }

    fn step(&mut self, step: &Step) {
        let shard = match *step {
            Step::Present { shard, key, session } => {
                let shard = usize::from(shard);
                let (number, params) = (self.asked.len(), format!(r#""name":"t","key":{key},"#));
                let field = format!("Idempotency-Key: key-{key}\r\n");
                let (id_text, request) = if session {
                    let body = format!(
                        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{{params}"_meta":{{"n":{number}}}}}}}"#
                    );
                    (format!("\"id\":{number},"), post(&format!("{}{field}", id(self.sessions[shard])), &body))
                } else {
                    ("\"id\":\"c1\",".into(), Modern { params: &params, more: &field, ..Modern::call() }.text())
                };
                let (conn, _) = self.shards[shard].ask(&request);
                self.asked.push(Asked { shard, conn, key, id: id_text, session, left: false });
                shard
            }
            Step::Carry { which } => {
                let ways: Vec<_> = self.mail.iter().filter(|(_, mail)| !mail.is_empty()).map(|(way, _)| *way).collect();
                if ways.is_empty() {
                    return;
                }
                let way = ways[usize::from(which) % ways.len()];
                let mail = self.mail.get_mut(&way).expect("there is some").remove(0);
                self.shards[way.1].input(Input::Mail(mail));
                way.1
            }
            Step::Leave { which } => {
                if self.asked.is_empty() {
                    return;
                }
                let index = usize::from(which) % self.asked.len();
                let asked = &mut self.asked[index];
                if std::mem::replace(&mut asked.left, true) {
                    return;
                }
                let (shard, conn) = (asked.shard, asked.conn);
                self.shards[shard].input(Input::Closed { conn });
                shard
            }
            Step::Answer { which } | Step::Refuse { which } => {
                if self.running.is_empty() {
                    return;
                }
                let (shard, session, call, key) = self.running.remove(usize::from(which) % self.running.len());
                if matches!(step, Step::Refuse { .. }) {
                    *self.executions.get_mut(&key).expect("it runs") -= 1;
                    self.shards[shard].emit(session, Emission::Shed { call, why: "no room" }).expect("taken");
                } else {
                    let result = format!(r#"{{"of":{}}}"#, call.0);
                    self.came_to.insert(key, format!("\"of\":{}", call.0));
                    self.shards[shard].result(session, call, &result).expect("taken");
                }
                shard
            }
            Step::Delete { shard } => {
                let shard = usize::from(shard);
                let session = self.sessions[shard];
                self.shards[shard].ask(&format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{}\r\n", id(session)));
                self.collect(shard);
                // What it asked is cancelled: its streams end without an answer.
                self.asked.iter_mut().filter(|asked| asked.session && asked.shard == shard).for_each(|asked| asked.left = true);
                self.sessions[shard] = self.shards[shard].session_anywhere();
                shard
            }
        };
        self.collect(shard);
    }

    fn in_flight(&self) -> bool {
        self.mail.values().any(|mail| !mail.is_empty()) || !self.running.is_empty()
    }

    fn check(&self) {
        for (key, executions) in &self.executions {
            assert!(*executions <= 1, "key {key} was executed {executions} times");
        }
        for asked in self.asked.iter().filter(|asked| !asked.left) {
            let answer = self.shards[asked.shard].got(asked.conn);
            let answers = answer.matches("\"jsonrpc\":\"2.0\"").count();
            assert!(answers <= 1, "two answers: {answer}");
            if !self.in_flight() {
                assert_eq!(answers, 1, "nobody waits for ever: {}", asked.key);
            }
            if answers == 1 && !answer.contains("\"code\":\"shed\"") && !answer.contains("session_expired") {
                assert!(answer.contains(&asked.id), "under its own id: {answer}");
                let came_to = self.came_to.get(&asked.key).unwrap_or_else(|| panic!("nothing ran under {}: {answer}", asked.key));
                assert!(answer.contains(came_to) || answer.contains("-32010"), "{came_to} became {answer}");
            }
        }
    }
}

impl Bench {
    /// A session of whichever shard this is.
    fn session_anywhere(&mut self) -> SessionId {
        let (conn, _) = self.accept_placed(&post("", r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}"#));
        let Some((session, Delivery::Initialize { call, .. })) = self.deliveries.pop() else { panic!("{}", self.got(conn)) };
        self.result(session, call, r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#).expect("taken");
        session
    }

    fn accept_placed(&mut self, request: &str) -> (ConnId, String) {
        let bytes = Bytes::copy_from_slice(request.as_bytes());
        let conn = self.accepted(|conn| Input::HandedOver { conn, bytes, placed: true });
        (conn, self.got(conn))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_key_is_executed_once_and_everybody_who_waits_is_answered(steps in steps()) {
        let mut storm = Storm::new();
        for step in &steps {
            storm.step(step);
            storm.check();
        }
        // To the end: all mail arrives, and whatever runs is answered.
        while storm.in_flight() {
            storm.step(&Step::Carry { which: 0 });
            if storm.mail.values().all(Vec::is_empty) {
                storm.step(&Step::Answer { which: 0 });
            }
        }
        storm.check();
        for shard in &storm.shards {
            prop_assert!(shard.shard.held_back.is_empty());
            prop_assert_eq!(shard.shard.exchanges, 0);
        }
    }
}
