//! How a server is set up and started.
//!
//! Never serves anything itself: it makes the shards, each on its thread, and lets them go.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;

use rejoin_proto::http::Names;
use rejoin_proto::ids::{Boot, Key, ShardIndex};
use rejoin_proto::incarnations::{Tables, Writer, table};
use rejoin_proto::limits::Limits;
use rejoin_proto::shard::{Config, Finished, ResponsePolicy, Shard};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::dispatch::Dispatch;
use crate::driver::{self, Chosen, Driver};
use crate::error::StartError;
use crate::handle::{Running, ServerHandle};
use crate::handler::Handler;
use crate::listener::{self, Entrance};
use crate::mail::{CAPACITY, Common, Mail, Remote};
use crate::shard::{Local, Parts};
use crate::task;
use crate::watch;
use crate::world::{Anonymous, Authorize, World};

/// Most shards of a server. Reason: a session id names its shard in one byte.
const MAX_SHARDS: usize = u8::MAX as usize + 1;

/// A server for MCP clients, before it is set up.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// A builder with every default: loopback, a free port, one shard a core, a fresh key, everyone anonymous.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// How a server is set up. Limits of memory, sessions and connections are the whole process's; shards share them evenly.
pub struct Builder {
    listen: SocketAddr,
    shards: Option<usize>,
    key: Option<Key>,
    limits: Limits,
    path: String,
    allow_hosts: Vec<String>,
    allow_origins: Vec<String>,
    finished: Finished,
    response: ResponsePolicy,
    heads: bool,
    driver: Driver,
    authorize: Arc<dyn Authorize>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            shards: None,
            key: None,
            limits: Limits::default(),
            path: "/mcp".into(),
            allow_hosts: Vec::new(),
            allow_origins: Vec::new(),
            finished: Finished::default(),
            response: ResponsePolicy::default(),
            heads: false,
            driver: Driver::default(),
            authorize: Arc::new(Anonymous),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("listen", &self.listen).field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl Builder {
    /// The address to listen on; port 0 finds a free one. Default: 127.0.0.1:0.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// How many shards, each a thread; from 1 to 256. Default: one for each core that this process may use.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The secret behind session ids and cursors. One kept over a restart keeps ids authentic: their holders are told `restarted`.
    /// Default: a fresh one.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// The bounds. `connections`, `sessions` and `log_bytes` are the whole process's.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The endpoint's path, from its slash. Default: `/mcp`.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Hosts and origins that are allowed beside loopback names and the bound address.
    pub fn names(mut self, hosts: Vec<String>, origins: Vec<String>) -> Self {
        self.allow_hosts = hosts;
        self.allow_origins = origins;
        self
    }

    /// What a cursor at the end of a finished stream is answered. Default: 204.
    pub fn finished(mut self, finished: Finished) -> Self {
        self.finished = finished;
        self
    }

    /// The form of a call's answer. Default: one JSON body where the result is ready at once, else SSE.
    pub fn response(mut self, response: ResponsePolicy) -> Self {
        self.response = response;
        self
    }

    /// Whether handlers see the heads of requests ([`Session::head`](crate::Session::head)); a head is then kept for as long as the
    /// call or the handle that it came with. Default: no.
    pub fn request_heads(mut self, heads: bool) -> Self {
        self.heads = heads;
        self
    }

    /// The driver. Default: io_uring where it works, else epoll.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// Who callers are. Default: everyone is anonymous.
    pub fn authorize(mut self, authorize: impl Authorize) -> Self {
        self.authorize = Arc::new(authorize);
        self
    }

    /// Starts the server. `factory` makes each shard's handler, on the shard's thread.
    pub fn serve<H, F>(self, factory: F) -> Result<ServerHandle, StartError>
    where
        H: Handler,
        F: Fn() -> H + Send + Sync + 'static,
    {
        self.check()?;
        let affinity = Affinity::of_this_thread();
        let shards = self.shards.unwrap_or_else(|| affinity.cores().clamp(1, MAX_SHARDS));
        let chosen = driver::choose(self.driver).map_err(StartError::Driver)?;
        let listeners =
            listener::bind(self.listen, shards, &self.limits).map_err(|error| StartError::Listen(self.listen, error))?;
        let address = listeners[0].local_addr().map_err(|error| StartError::Listen(self.listen, error))?;
        let made = Made::new(&self, shards, address, H::STATELESS, factory)?;
        let running = Arc::new(Running::new(shards));
        let remotes = Arc::clone(&made.remotes);
        let made = Arc::new(made);
        let (ready, told) = mpsc::channel();
        let mut started = Vec::new();
        for (index, listener) in listeners.into_iter().enumerate() {
            let seat = made.seat(index).ok_or(StartError::Invalid("a shard was made twice"))?;
            let (made, running, ready) = (Arc::clone(&made), Arc::clone(&running), ready.clone());
            let core = affinity.core(index, shards);
            let thread = thread::Builder::new().name(format!("rejoin-{index}")).spawn(move || {
                pin(core);
                let work = AssertUnwindSafe(|| run_shard(&made, seat, listener, chosen, &ready));
                catch_unwind(work).unwrap_or_else(|panic| task::die(&*panic));
                running.one_ended();
            });
            started.push(thread.map(drop).map_err(StartError::Shard));
        }
        // Each shard tells once. One that started beside one that did not is told to end.
        let all_told = || told.iter().take(shards).try_for_each(|started| started);
        let outcome = started.into_iter().collect::<Result<(), _>>().and_then(|()| all_told());
        let outcome = outcome.and_then(|()| watch::start(Arc::clone(&remotes), Arc::clone(&running)).map_err(StartError::Shard));
        let handle = ServerHandle::new(address, chosen.to_string(), remotes, running);
        match outcome {
            Ok(()) => {
                tracing::info!(%address, shards, driver = %chosen, "listening");
                Ok(handle)
            }
            Err(error) => {
                handle.shutdown(std::time::Duration::ZERO);
                Err(error)
            }
        }
    }

    /// What is impossible in these settings, as [`Builder::serve`] would refuse it before anything starts.
    pub fn check(&self) -> Result<(), StartError> {
        if self.shards.is_some_and(|shards| !(1..=MAX_SHARDS).contains(&shards)) {
            return Err(StartError::Invalid("the number of shards must be from 1 to 256"));
        }
        if !self.path.starts_with('/') || self.path.contains(|c: char| !c.is_ascii_graphic() || c == '?' || c == '#') {
            return Err(StartError::Invalid("the path must begin with a slash, and be visible ASCII without ? and #"));
        }
        Ok(())
    }
}

/// What a shard gets of limits that are the whole process's: an even part, rounded up.
fn share(limits: &Limits, shards: usize) -> Limits {
    let count = u32::try_from(shards).unwrap_or(u32::MAX);
    Limits {
        connections: limits.connections.div_ceil(count),
        sessions: limits.sessions.div_ceil(count),
        exchanges: limits.exchanges.div_ceil(count),
        log_bytes: limits.log_bytes.div_ceil(shards),
        key_records: limits.key_records.div_ceil(shards),
        key_bytes: limits.key_bytes.div_ceil(shards),
        ..limits.clone()
    }
}

/// What belongs to one shard alone.
struct Seat {
    shard: ShardIndex,
    writer: Writer,
    receiver: rejoin_mailbox::Receiver<Mail>,
}

/// What the shards' threads share while they start.
struct Made<F> {
    config: Config,
    common: Arc<Common>,
    remotes: Arc<[Arc<Remote>]>,
    tables: Tables,
    authorize: Arc<dyn Authorize>,
    seats: std::sync::Mutex<Vec<Option<Seat>>>,
    factory: F,
}

impl<F> Made<F> {
    fn new(builder: &Builder, shards: usize, address: SocketAddr, exchanges: bool, factory: F) -> Result<Self, StartError> {
        let random = |bytes: &mut [u8]| getrandom::fill(bytes).map_err(|error| StartError::Shard(error.into()));
        let (mut key, mut boot) = ([0; 16], [0; 4]);
        random(&mut key)?;
        random(&mut boot)?;
        let boot = Boot(u32::from_ne_bytes(boot));
        let limits = share(&builder.limits, shards);
        let common = Arc::new(Common::new());
        let (mut remotes, mut tables, mut seats) = (Vec::new(), Vec::new(), Vec::new());
        for shard in (0..=u8::MAX).map(ShardIndex).take(shards) {
            // Twice as many slots as sessions: as many ends are remembered as sessions may live.
            let slots = limits.sessions.saturating_mul(2).saturating_add(if exchanges { limits.exchanges } else { 0 });
            let (shared, writer) = table(shard, boot, slots);
            let (sender, receiver) = rejoin_mailbox::mailbox(CAPACITY);
            tables.push(shared);
            remotes.push(Arc::new(Remote::new(Arc::clone(&common), sender)));
            seats.push(Some(Seat { shard, writer, receiver }));
        }
        let bound = address.ip().to_string();
        let names = Names::new(Some(&bound), &builder.allow_hosts, &builder.allow_origins).map_err(StartError::Name)?;
        let config = Config {
            shard: ShardIndex(0),
            shards: u16::try_from(shards).unwrap_or(u16::MAX),
            boot,
            key: builder.key.clone().unwrap_or_else(|| Key::new(key)),
            path: builder.path.clone(),
            limits,
            names,
            finished: builder.finished,
            response: builder.response,
            exchanges,
            heads: builder.heads,
        };
        let (remotes, tables) = (remotes.into(), Tables::new(boot, tables));
        let authorize = Arc::clone(&builder.authorize);
        Ok(Self { config, common, remotes, tables, authorize, seats: seats.into(), factory })
    }

    fn seat(&self, index: usize) -> Option<Seat> {
        self.seats.lock().ok()?.get_mut(index)?.take()
    }
}

/// A shard's thread, from its beginning to its end.
fn run_shard<H, F>(
    made: &Made<F>,
    seat: Seat,
    listener: TcpListener,
    chosen: Chosen,
    ready: &mpsc::Sender<Result<(), StartError>>,
) where
    H: Handler,
    F: Fn() -> H,
{
    let Seat { shard, writer, receiver } = seat;
    let config = Config { shard, ..made.config.clone() };
    let world = World { shard, tables: made.tables.clone(), authorize: Arc::clone(&made.authorize) };
    let limits = config.limits.clone();
    let kernel = Box::new(Shard::new(config, writer, made.common.now()));
    let parts = Parts { kernel, deliver: Dispatch::new((made.factory)()), world, remotes: Arc::clone(&made.remotes), limits };
    let shard = Local::new(shard, parts).and_then(|local| Ok((local, Entrance::new(listener)?)));
    // The one who asked may have given up already; the shard is then told to end.
    let tell = |outcome| drop(ready.send(outcome));
    match shard {
        Ok((local, entrance)) => {
            driver::run(chosen, |built| tell(built.map_err(StartError::Shard)), || Rc::clone(&local).run(receiver, entrance))
        }
        Err(error) => tell(Err(StartError::Shard(error))),
    }
}

/// The cores that this process may use.
struct Affinity(Vec<usize>);

impl Affinity {
    fn of_this_thread() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
    }

    fn cores(&self) -> usize {
        self.0.len()
    }

    /// The core of a shard; none where there are more shards than cores, since two on one core could not move apart.
    fn core(&self, index: usize, shards: usize) -> Option<usize> {
        if shards > 1 && shards <= self.0.len() { self.0.get(index).copied() } else { None }
    }
}

/// Pins this thread where the system allows it; elsewhere it is only a little slower.
fn pin(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(%error, core, "a shard is not pinned");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_process_are_split_evenly_and_rounded_up() {
        let limits = Limits { connections: 10, sessions: 7, exchanges: 8, log_bytes: 100, ..Limits::default() };
        let shared = share(&limits, 3);
        assert_eq!((shared.connections, shared.sessions, shared.exchanges, shared.log_bytes), (4, 3, 3, 34));
        assert_eq!(shared.body_bytes, limits.body_bytes);
    }

    #[test]
    fn impossible_settings_are_refused_before_anything_starts() {
        for shards in [0, 257] {
            assert!(matches!(Builder::default().shards(shards).check(), Err(StartError::Invalid(_))));
        }
        for path in ["mcp", "/a b", "/a?b", ""] {
            assert!(matches!(Builder::default().path(path).check(), Err(StartError::Invalid(_))), "{path}");
        }
    }
}
