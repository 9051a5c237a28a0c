//! A client: it calls, listens, comes back, repeats itself, answers late, and sometimes does what no client should.
//!
//! Knows only what it has read. Never checks anything: that is the oracle's.

use std::rc::Rc;

use rejoin_proto::ids::{Cursor, Incarnation, Key, Position, SessionId, StreamNumber};

use super::handler::REVISIONS;
use super::oracle::Heard;
use super::oracle::book::{Book, Draft};
use super::plan::{ACTS, Act, Plan};
use super::request::{Flaw, Intent, Post, Shown, Verb};
use super::rng::Rng;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    principal: Option<&'static str>,
    revision: &'static str,
    old_http: bool,
    ids: Ids,
    next_id: u64,
    /// Its session, as text, and the revision that its server chose.
    session: Option<Rc<str>>,
    /// An `initialize` is under way.
    pub(crate) starting: bool,
    confirmed: bool,
    /// Calls without an answer.
    calls: Vec<Mine>,
    /// Streams that it has ids of.
    follows: Vec<Follow>,
    /// Requests of the server, old and new.
    requests: Vec<u64>,
    /// Sessions that it had.
    past: Vec<Rc<str>>,
}

/// How a client names its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    /// 1, 2, 3, …
    Counting,
    /// Strings.
    Text,
    /// Always 1.
    One,
    /// A few, over and over.
    Few,
}

/// A call that waits.
#[derive(Debug)]
struct Mine {
    post: Post,
    session: Rc<str>,
    /// Ids still to be answered.
    open: Vec<Rc<str>>,
    /// The number of its first request.
    marker: usize,
    /// A connection carries it.
    carried: u32,
}

/// A stream that it has ids of.
#[derive(Debug)]
struct Follow {
    session: Rc<str>,
    cursor: Cursor,
    last: Rc<str>,
    older: Vec<Rc<str>>,
    /// The call that it answers, by number.
    marker: Option<usize>,
    /// A connection carries it.
    carried: bool,
    /// Nothing more will come.
    done: bool,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) intent: Intent,
    pub(crate) body: String,
}

/// What a client reads.
#[derive(Clone, Debug)]
pub(crate) enum Thing {
    /// `100 Continue`.
    Continue,
    /// A head; the session id that it names.
    Head { status: u16, session: Option<Rc<str>> },
    /// A block of a stream.
    Heard(Heard),
    /// An answer is complete: how it refuses, and the ids of the calls that a JSON body answers.
    End { lost: Option<Loss>, answers: Vec<Rc<str>>, stream: bool, status: u16 },
}

/// What a refusal takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The session.
    Session,
    /// The stream that was asked for.
    Stream,
}

/// Who callers are.
pub(crate) const PRINCIPALS: [Option<&str>; 3] = [None, Some("ann"), Some("bob")];

impl Client {
    /// A client with habits of its own.
    pub(crate) fn new(index: usize, rng: &mut Rng) -> Self {
        Self {
            principal: PRINCIPALS[index % PRINCIPALS.len()],
            revision: REVISIONS[rng.weighted(&[3, 2, 5])],
            old_http: rng.chance(100),
            ids: [Ids::Counting, Ids::Text, Ids::One, Ids::Few][rng.weighted(&[6, 2, 1, 2])],
            next_id: 1,
            session: None,
            starting: false,
            confirmed: false,
            calls: Vec::new(),
            follows: Vec::new(),
            requests: Vec::new(),
            past: Vec::new(),
        }
    }

    /// What it waits for, in words; empty when it has had everything.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        self.calls.iter().map(|mine| format!("call {} ({:?}) in {}", mine.marker, mine.open, mine.session)).collect()
    }

    // ---- what it does ----

    /// What it does next.
    pub(crate) fn act(&mut self, plan: &Plan, book: &mut Book, texts: &[Rc<str>], key: &Key, rng: &mut Rng) -> Option<Order> {
        let Some(session) = self.session.clone() else {
            if rng.chance(100) {
                return self.flawed(rng);
            }
            return (!self.starting).then(|| self.initialize(book, rng));
        };
        if !self.confirmed && rng.chance(700) {
            self.confirmed = true;
            let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned();
            return Some(Order { intent: self.post(Post::Initialized, &session, rng), body });
        }
        match ACTS[rng.weighted(&plan.acts)] {
            Act::Call => self.call("tools/call", &session, plan, book, rng),
            Act::Ask => {
                let method = *rng.pick(&["tools/list", "resources/subscribe", "resources/unsubscribe"]);
                self.call(method, &session, plan, book, rng)
            }
            Act::Repost => self.repost(book, rng),
            Act::Batch => self.batch(&session, plan, book, rng),
            Act::Note => {
                let (note, body) = book.note(session.clone());
                book.notes[note].posts += 1;
                Some(Order { intent: self.post(Post::Note(note), &session, rng), body })
            }
            Act::Cancel => self.cancel(&session, book, rng),
            Act::Respond => self.respond(&session, rng),
            Act::Listen => Some(self.get(&session, Shown::Absent, rng)),
            Act::Resume => self.resume(rng),
            Act::Stray => self.stray(&session, key, rng),
            Act::Flawed => self.flawed(rng),
            Act::Trespass => self.trespass(plan, book, texts, rng),
            Act::Delete => Some(Order { intent: self.intent(Verb::Delete, &session, rng), body: String::new() }),
            Act::Restart => (!self.starting).then(|| self.initialize(book, rng)),
        }
    }

    /// What it does when it only wants what it still waits for.
    pub(crate) fn recover(&mut self, book: &mut Book, rng: &mut Rng) -> Option<Order> {
        let index = self.calls.iter().position(|mine| mine.carried == 0)?;
        let marker = self.calls[index].marker;
        if self.follows.iter().any(|follow| follow.marker == Some(marker) && follow.carried) {
            return None;
        }
        let found = self.follows.iter_mut().find(|follow| follow.marker == Some(marker) && !follow.done);
        match found {
            Some(follow) => {
                follow.carried = true;
                let (session, last) = (follow.session.clone(), follow.last.clone());
                Some(self.get(&session, Shown::One(last), rng))
            }
            None => self.repost_of(index, book, rng),
        }
    }

    fn intent(&self, verb: Verb, session: &Rc<str>, rng: &mut Rng) -> Intent {
        let mut intent = Intent::new(verb);
        intent.principal = self.principal;
        intent.session = Shown::One(session.clone());
        intent.old_http = self.old_http;
        intent.keep_alive = if self.old_http { rng.chance(200) } else { !rng.chance(60) };
        intent.revision = match rng.below(40) {
            0..20 => Some(self.revision),
            20 => Some(*rng.pick(&REVISIONS)),
            21 if rng.chance(300) => Some(*rng.pick(&["1999-01-01", "2026-07-28", ""])),
            _ => None,
        };
        intent.origin = rng.chance(60).then_some("http://localhost:3000");
        intent
    }

    fn post(&self, post: Post, session: &Rc<str>, rng: &mut Rng) -> Intent {
        self.intent(Verb::Post(post), session, rng)
    }

    fn get(&self, session: &Rc<str>, cursor: Shown, rng: &mut Rng) -> Order {
        let mut intent = self.intent(Verb::Get, session, rng);
        intent.cursor = cursor;
        Order { intent, body: String::new() }
    }

    fn initialize(&mut self, book: &mut Book, rng: &mut Rng) -> Order {
        self.starting = true;
        let draft = Draft {
            session: None,
            principal: self.principal,
            method: "initialize",
            id: self.id(rng),
            token: None,
            revision: Some(self.revision),
            pad: 0,
        };
        let (marker, body) = book.call(draft);
        book.calls[marker].posts += 1;
        let stale = self.past.last().cloned().or_else(|| self.session.clone()).filter(|_| rng.chance(300));
        let mut intent = self.intent(Verb::Post(Post::Initialize(marker)), &Rc::from(""), rng);
        intent.session = stale.map_or(Shown::Absent, Shown::One);
        Order { intent, body }
    }

    fn id(&mut self, rng: &mut Rng) -> Rc<str> {
        self.next_id += 1;
        match self.ids {
            Ids::Counting => self.next_id.to_string().into(),
            Ids::Text => format!(r#""call-{}""#, self.next_id).into(),
            Ids::One => "1".into(),
            Ids::Few => rng.range(1, 6).to_string().into(),
        }
    }

    fn draft(&mut self, method: &'static str, session: &Rc<str>, plan: &Plan, rng: &mut Rng) -> Draft<'static> {
        let token: Option<Rc<str>> = match rng.below(4) {
            0 => None,
            1 => Some(self.next_id.to_string().into()),
            2 => Some(r#""progress""#.into()),
            _ => Some("1".into()),
        };
        let pad = plan.size(rng).min(20_000);
        Draft { session: Some(session.clone()), principal: self.principal, method, id: self.id(rng), token, revision: None, pad }
    }

    fn call(&mut self, method: &'static str, session: &Rc<str>, plan: &Plan, book: &mut Book, rng: &mut Rng) -> Option<Order> {
        if self.calls.len() > 12 {
            return self.resume(rng);
        }
        let draft = self.draft(method, session, plan, rng);
        let (marker, body) = book.call(draft);
        book.calls[marker].posts += 1;
        self.waits(Post::Call(marker), session, marker, vec![book.calls[marker].id.clone()]);
        Some(Order { intent: self.post(Post::Call(marker), session, rng), body })
    }

    fn waits(&mut self, post: Post, session: &Rc<str>, marker: usize, open: Vec<Rc<str>>) {
        self.calls.push(Mine { post, session: session.clone(), open, marker, carried: 1 });
    }

    fn batch(&mut self, session: &Rc<str>, plan: &Plan, book: &mut Book, rng: &mut Rng) -> Option<Order> {
        if self.calls.len() > 12 || (self.revision != REVISIONS[0] && rng.chance(900)) {
            return self.resume(rng);
        }
        // More than may be in flight would be refused for ever.
        let count = rng.range(1, 3.min(plan.limits.calls_in_flight as u64));
        let mut drafts = Vec::new();
        for _ in 0..count {
            let method = if rng.chance(700) { "tools/call" } else { "tools/list" };
            drafts.push(self.draft(method, session, plan, rng));
        }
        let note = rng.chance(300).then(|| book.note(session.clone()).0);
        let (markers, body) = book.batch(drafts, note);
        let post = Post::Batch(markers.clone(), note);
        Self::counts(book, &post);
        self.waits(post.clone(), session, markers[0], markers.iter().map(|&marker| book.calls[marker].id.clone()).collect());
        Some(Order { intent: self.post(post, session, rng), body })
    }

    /// A body is POSTed.
    fn counts(book: &mut Book, post: &Post) {
        match post {
            Post::Call(marker) => book.calls[*marker].posts += 1,
            Post::Batch(markers, note) => {
                markers.iter().for_each(|&marker| book.calls[marker].posts += 1);
                note.iter().for_each(|&note| book.notes[note].posts += 1);
            }
            _ => {}
        }
    }

    fn repost(&mut self, book: &mut Book, rng: &mut Rng) -> Option<Order> {
        if self.calls.is_empty() {
            return None;
        }
        let index = rng.index(self.calls.len());
        self.repost_of(index, book, rng)
    }

    fn repost_of(&mut self, index: usize, book: &mut Book, rng: &mut Rng) -> Option<Order> {
        let mine = &mut self.calls[index];
        mine.carried += 1;
        let (post, session) = (mine.post.clone(), mine.session.clone());
        let body = match &post {
            Post::Call(marker) => book.body(*marker),
            Post::Batch(markers, note) => book.batch_body(markers, *note),
            _ => return None,
        };
        Self::counts(book, &post);
        Some(Order { intent: self.post(post, &session, rng), body })
    }

    fn cancel(&mut self, session: &Rc<str>, book: &Book, rng: &mut Rng) -> Option<Order> {
        let mine = self.calls.get(rng.index(self.calls.len().max(1)))?;
        let id = book.calls[mine.marker].id.clone();
        let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
        Some(Order { intent: self.post(Post::Cancel(id), session, rng), body })
    }

    fn respond(&mut self, session: &Rc<str>, rng: &mut Rng) -> Option<Order> {
        let request = match self.requests.len() {
            _ if rng.chance(30) => rng.below(1 << 40),
            0 => return None,
            // Mostly the newest; an old one was answered already, or failed.
            known => self.requests[known - 1 - rng.index(known.min(8))],
        };
        let body = match rng.chance(200) {
            true => format!(r#"{{"jsonrpc":"2.0","id":{request},"error":{{"code":-1,"message":"no {request}"}}}}"#),
            false => format!(r#"{{"jsonrpc":"2.0","id":{request},"result":{{ "answer" : {request} }}}}"#),
        };
        Some(Order { intent: self.post(Post::Respond(request), session, rng), body })
    }

    fn resume(&mut self, rng: &mut Rng) -> Option<Order> {
        // Mostly one that no connection carries; else a takeover.
        let takeover = rng.chance(60);
        let candidates: Vec<_> = (0..self.follows.len())
            .filter(|&index| !self.follows[index].done && (takeover || !self.follows[index].carried))
            .collect();
        let index = *candidates.get(rng.index(candidates.len().max(1)))?;
        let follow = &mut self.follows[index];
        follow.carried = true;
        let (session, last) = (follow.session.clone(), follow.last.clone());
        Some(self.get(&session, Shown::One(last), rng))
    }

    fn stray(&mut self, session: &Rc<str>, key: &Key, rng: &mut Rng) -> Option<Order> {
        let known = (!self.follows.is_empty()).then(|| rng.index(self.follows.len()));
        let mint = |incarnation: u32, stream: u32, position: u64| {
            let id = SessionId::parse(session.as_bytes(), key).ok()?;
            let cursor = Cursor::new(Incarnation(incarnation), StreamNumber(stream), Position::new(position));
            Some(Rc::<str>::from(cursor.encode(key, &id).as_str()))
        };
        let cursor = match (rng.below(20), known) {
            // What this server said, some time ago or of another session.
            (0..10, Some(index)) => {
                let follow = &self.follows[index];
                Shown::One(follow.older.get(rng.index(follow.older.len().max(1))).unwrap_or(&follow.last).clone())
            }
            (10..12, Some(index)) => {
                let mut forged = self.follows[index].last.to_string();
                let last = if forged.ends_with('0') { "1" } else { "0" };
                forged.replace_range(forged.len() - 1.., last);
                Shown::One(forged.into())
            }
            (12, Some(index)) => Shown::Twice(self.follows[index].last.clone()),
            (13, _) => Shown::One((*rng.pick(&["", "1", "1.0.0", "garbage", "01.0.0.0123456789abcdef"])).into()),
            // A log that lost its tail: this server could have said it in another life of its log.
            (14, Some(index)) if rng.chance(150) => {
                let cursor = self.follows[index].cursor;
                Shown::One(mint(cursor.incarnation().0, cursor.stream().0, cursor.position().get() + rng.range(1, 1 << 50))?)
            }
            (15, _) if rng.chance(100) => Shown::One(mint(1, u32::MAX, 0)?),
            (16, _) => Shown::One(mint(rng.range(2, 9) as u32, 0, 0)?),
            _ => return None,
        };
        Some(self.get(session, cursor, rng))
    }

    fn flawed(&mut self, rng: &mut Rng) -> Option<Order> {
        let session = self.session.clone().unwrap_or_else(|| "".into());
        let ping = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;
        let (post, body) = match rng.below(4) {
            0 => (Post::NotJson, r#"{"jsonrpc":"2.0","#),
            1 => (Post::NotRpc, r#"{"hello":"world"}"#),
            2 => (Post::InitializeInBatch, r#"[{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}]"#),
            _ => (Post::NotJson, "no json"),
        };
        let verb = match rng.below(8) {
            0..3 => Verb::Get,
            3..5 => Verb::Post(post),
            5 => Verb::Options,
            6 => Verb::Head,
            _ => Verb::Put,
        };
        let posts = matches!(verb, Verb::Post(_));
        let mut intent = self.intent(verb, &session, rng);
        if rng.chance(150) {
            intent.session = if rng.chance(500) { Shown::Absent } else { Shown::Twice(session) };
            if posts {
                // It must not get that far.
                intent.flaws.push(Flaw::ContentType);
            }
        } else {
            let all = [
                Flaw::Smuggled,
                Flaw::NoHost,
                Flaw::TwoHosts,
                Flaw::StrangeHost,
                Flaw::StrangeOrigin,
                Flaw::Path,
                Flaw::Nobody,
                Flaw::Accept,
                Flaw::ContentType,
                Flaw::TooLarge,
            ];
            let most = if posts { all.len() } else { 8 };
            for _ in 0..rng.below(3) {
                intent.flaws.push(all[rng.index(most)]);
            }
        }
        if self.old_http {
            intent.flaws.retain(|flaw| *flaw != Flaw::NoHost && *flaw != Flaw::Smuggled);
        }
        if intent.has(Flaw::NoHost) || intent.has(Flaw::Smuggled) {
            // These cannot be told from each other, or not be written together.
            intent.flaws.retain(|flaw| !matches!(flaw, Flaw::TwoHosts | Flaw::StrangeHost | Flaw::TooLarge));
        }
        let body = if posts { body } else { ping };
        let flawless = intent.flaws.is_empty() && matches!(intent.session, Shown::One(_)) && matches!(intent.verb, Verb::Get);
        (!flawless).then(|| Order { intent, body: body.to_owned() })
    }

    fn trespass(&mut self, plan: &Plan, book: &mut Book, texts: &[Rc<str>], rng: &mut Rng) -> Option<Order> {
        let foreign = match rng.below(4) {
            0 => self.past.last().cloned(),
            1 => Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into()),
            _ if texts.is_empty() => None,
            _ => Some(rng.pick(texts).clone()),
        }?;
        match rng.below(4) {
            0 => Some(self.get(&foreign, Shown::Absent, rng)),
            1 => {
                let cursor = self.follows.last().map_or(Shown::Absent, |follow| Shown::One(follow.last.clone()));
                Some(self.get(&foreign, cursor, rng))
            }
            2 => {
                let (note, body) = book.note(foreign.clone());
                book.notes[note].posts += 1;
                Some(Order { intent: self.post(Post::Note(note), &foreign, rng), body })
            }
            _ => {
                let draft = self.draft("tools/call", &foreign, plan, rng);
                let (marker, body) = book.call(draft);
                book.calls[marker].posts += 1;
                Some(Order { intent: self.post(Post::Call(marker), &foreign, rng), body })
            }
        }
    }

    // ---- what it reads ----

    /// It reads something that answers `intent`.
    pub(crate) fn reads(&mut self, intent: &Intent, thing: &Thing) {
        match thing {
            Thing::Continue => {}
            Thing::Head { session: Some(session), status: 200, .. } => self.begins(session),
            Thing::Head { .. } => {}
            Thing::Heard(heard) => self.hears(intent, heard),
            Thing::End { lost, answers, stream, status } => {
                match lost {
                    Some(Loss::Session) => self.loses(intent),
                    Some(Loss::Stream) => self.forgets(intent),
                    None => {}
                }
                if let Some(marker) = marker_of(intent) {
                    answers.iter().for_each(|id| self.answered(marker, id));
                }
                if matches!(intent.verb, Verb::Get) && matches!(status, 204 | 405) {
                    self.completes(intent);
                }
                if matches!(intent.verb, Verb::Delete) && *status == 204 {
                    self.loses(intent);
                }
                if !*stream
                    && *status != 200
                    && *status != 503
                    && *status != 408
                    && let Some(marker) = marker_of(intent)
                {
                    // Refused for good: it never ran.
                    self.calls.retain(|mine| mine.marker != marker);
                }
                self.let_go(intent);
            }
        }
    }

    /// The connection is gone that should have answered this.
    pub(crate) fn let_go(&mut self, intent: &Intent) {
        match &intent.verb {
            Verb::Post(Post::Initialize(_)) => self.starting = false,
            Verb::Post(_) => {
                if let Some(mine) = marker_of(intent).and_then(|marker| self.mine(marker)) {
                    mine.carried = mine.carried.saturating_sub(1);
                }
                let marker = marker_of(intent);
                self.follows.iter_mut().filter(|follow| follow.marker == marker).for_each(|follow| follow.carried = false);
            }
            Verb::Get => {
                if let Some(follow) = self.asked_for(intent) {
                    follow.carried = false;
                }
            }
            _ => {}
        }
    }

    fn begins(&mut self, session: &Rc<str>) {
        self.past.extend(self.session.replace(session.clone()));
        self.confirmed = false;
        self.forget_all();
    }

    fn forget_all(&mut self) {
        self.calls.clear();
        self.follows.clear();
        if self.past.len() > 20 {
            self.past.remove(0);
        }
    }

    fn mine(&mut self, marker: usize) -> Option<&mut Mine> {
        self.calls.iter_mut().find(|mine| mine.marker == marker)
    }

    fn answered(&mut self, marker: usize, id: &Rc<str>) {
        let Some(mine) = self.mine(marker) else { return };
        if let Some(at) = mine.open.iter().position(|one| one == id) {
            mine.open.swap_remove(at);
        }
        self.calls.retain(|mine| !mine.open.is_empty());
    }

    fn hears(&mut self, intent: &Intent, heard: &Heard) {
        self.requests.extend(heard.request);
        if self.requests.len() > 64 {
            self.requests.remove(0);
        }
        let mut marker = marker_of(intent);
        if let Some((cursor, id)) = &heard.cursor
            && let Shown::One(session) = &intent.session
        {
            let same = |follow: &&mut Follow| {
                follow.session == *session
                    && (follow.cursor.incarnation(), follow.cursor.stream()) == (cursor.incarnation(), cursor.stream())
            };
            match self.follows.iter_mut().find(same) {
                Some(follow) => {
                    follow.cursor = *cursor;
                    let last = std::mem::replace(&mut follow.last, id.clone());
                    if follow.older.len() < 6 {
                        follow.older.push(last);
                    }
                    follow.carried = true;
                    marker = marker.or(follow.marker);
                }
                None => {
                    let (session, last) = (session.clone(), id.clone());
                    let (cursor, older) = (*cursor, Vec::new());
                    self.follows.push(Follow { session, cursor, last, older, marker, carried: true, done: false });
                    if self.follows.len() > 40 {
                        self.follows.retain(|follow| !follow.done);
                        self.follows.truncate(40);
                    }
                }
            }
        } else if let (None, Some(follow)) = (marker, self.asked_for(intent)) {
            marker = follow.marker;
        }
        if let (Some(marker), Some(id)) = (marker, &heard.answers) {
            self.answered(marker, id);
        }
    }

    /// The stream that a GET asked for.
    fn asked_for(&mut self, intent: &Intent) -> Option<&mut Follow> {
        let (Shown::One(session), Shown::One(cursor)) = (&intent.session, &intent.cursor) else { return None };
        let place = |id: &str| id.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
        let asked = place(cursor);
        self.follows.iter_mut().find(|follow| follow.session == *session && place(&follow.last) == asked)
    }

    fn completes(&mut self, intent: &Intent) {
        let Shown::One(cursor) = &intent.cursor else { return };
        let Some(follow) = self.asked_for(intent) else { return };
        // Only the last id says that everything was had.
        if follow.last == *cursor {
            follow.done = true;
            let marker = follow.marker;
            self.calls.retain(|mine| Some(mine.marker) != marker);
        }
    }

    fn loses(&mut self, intent: &Intent) {
        if let Shown::One(session) = &intent.session {
            self.calls.retain(|mine| mine.session != *session);
            self.follows.retain(|follow| follow.session != *session);
            if self.session.as_ref() == Some(session) {
                self.past.extend(self.session.take());
                self.forget_all();
            }
        }
    }

    fn forgets(&mut self, intent: &Intent) {
        let Shown::One(cursor) = &intent.cursor else { return };
        let Some(follow) = self.asked_for(intent).filter(|follow| follow.last == *cursor) else { return };
        follow.done = true;
        let marker = follow.marker;
        self.calls.retain(|mine| Some(mine.marker) != marker);
    }
}

/// The first request that a POST carries.
fn marker_of(intent: &Intent) -> Option<usize> {
    match &intent.verb {
        Verb::Post(Post::Call(marker)) => Some(*marker),
        Verb::Post(Post::Batch(markers, _)) => Some(markers[0]),
        _ => None,
    }
}
