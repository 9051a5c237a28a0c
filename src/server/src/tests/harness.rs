//! Shards with scripted kernels, on threads of their own.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rejoin_proto::ids::{Boot, SessionId, ShardIndex};
use rejoin_proto::incarnations::Tables;
use rejoin_proto::limits::Limits;
use rejoin_proto::shard::SessionView;
use rejoin_proto::shard::counters::Snapshot;
use rejoin_proto::shard::io::{Delivery, Input, Output};
use rejoin_proto::time::Instant;

use crate::dispatch::Deliver;
use crate::driver::{self, Chosen, Driver};
use crate::listener::{self, Entrance};
use crate::mail::{CAPACITY, Common, Remote};
use crate::shard::{Kernel, Local, Parts};
use crate::world::{Anonymous, World};

/// Every driver that works here. The probe's own tests say whether io_uring should.
pub(super) fn drivers() -> Vec<Chosen> {
    let chosen = |driver| driver::choose(driver).inspect_err(|error| eprintln!("not tested here: {driver:?} ({error})")).ok();
    [Driver::Epoll, Driver::Uring].into_iter().filter_map(chosen).collect()
}

/// A kernel that is a function of its input. It is also told the time, and may keep state.
pub(super) trait Script: FnMut(Input<'_>, Instant, &mut Vec<Output>) + Send + 'static {}
impl<F: FnMut(Input<'_>, Instant, &mut Vec<Output>) + Send + 'static> Script for F {}

struct Scripted<F>(F);

impl<F: Script> Kernel for Scripted<F> {
    fn handle(
        &mut self,
        input: Input<'_>,
        now: Instant,
        _: &mut dyn FnMut() -> u64,
        world: &dyn rejoin_proto::shard::io::World,
        out: &mut Vec<Output>,
    ) {
        let _ = world.place();
        if matches!(input, Input::Command(_)) {
            out.push(Output::Drained);
        }
        (self.0)(input, now, out);
    }

    fn sessions(&self) -> Vec<SessionView> {
        Vec::new()
    }

    fn snapshot(&self, _: Instant) -> Snapshot {
        Snapshot::default()
    }
}

/// Nobody is told anything.
struct NoHandler;

impl Deliver for NoHandler {
    fn deliver(&self, _: &Rc<Local>, _: SessionId, _: Delivery) {}
}

/// Shards that run until they are dropped.
pub(super) struct Shards {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) remotes: Arc<[Arc<Remote>]>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts one shard a script, each with a listener of its own, so that a test chooses where it connects.
pub(super) fn start(chosen: Chosen, scripts: Vec<Box<dyn Script>>) -> Shards {
    let common = Arc::new(Common::new());
    let (mut remotes, mut receivers) = (Vec::new(), Vec::new());
    for _ in &scripts {
        let (sender, receiver) = rejoin_mailbox::mailbox(CAPACITY);
        remotes.push(Arc::new(Remote::new(Arc::clone(&common), sender)));
        receivers.push(receiver);
    }
    let remotes: Arc<[_]> = remotes.into();
    let (mut addresses, mut threads) = (Vec::new(), Vec::new());
    for ((index, script), receiver) in (0..).zip(scripts).zip(receivers) {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = listener::bind(any, 1, &Limits::default()).expect("bind").remove(0);
        addresses.push(listener.local_addr().expect("bound"));
        let remotes = Arc::clone(&remotes);
        threads.push(thread::spawn(move || {
            let shard = ShardIndex(index);
            let world = World { shard, tables: Tables::new(Boot(1), Vec::new()), authorize: Arc::new(Anonymous) };
            let limits = Limits { close_grace: Duration::from_secs(1), ..Limits::default() };
            let parts = Parts { kernel: Box::new(Scripted(script)), deliver: Rc::new(NoHandler), world, remotes, limits };
            let local = Local::new(shard, parts).expect("a shard");
            let entrance = Entrance::new(listener).expect("descriptors");
            driver::run(chosen, |built| built.expect("a runtime"), || Rc::clone(&local).run(receiver, entrance));
            // Every task, and with it every socket, ended with the shard.
            assert_eq!(Rc::strong_count(&local), 1);
        }));
    }
    Shards { addresses, remotes, threads }
}

impl Shards {
    pub(super) fn connect(&self, shard: usize) -> TcpStream {
        let stream = TcpStream::connect(self.addresses[shard]).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        stream.set_write_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        stream
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for remote in &*self.remotes {
            remote.drain(remote.common.now());
        }
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// What a script tells its test.
pub(super) fn told<T>() -> (mpsc::Sender<T>, Told<T>) {
    let (sender, receiver) = mpsc::channel();
    (sender, Told(receiver))
}

pub(super) struct Told<T>(Receiver<T>);

impl<T> Told<T> {
    pub(super) fn next(&self) -> T {
        self.0.recv_timeout(Duration::from_secs(10)).expect("the script tells in time")
    }

    pub(super) fn nothing_for(&self, time: Duration) -> bool {
        self.0.recv_timeout(time).is_err()
    }
}

pub(super) fn is_reset(outcome: &io::Result<usize>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}
