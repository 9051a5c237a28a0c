//! Where connections come in: one listening socket a shard on one address, and the loop that accepts from it.
//!
//! Never waits inside an accept (readiness first, then a non-blocking call, so that nothing accepted can be lost), and never spins
//! when the process has no descriptor left.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rejoin_proto::limits::Limits;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::admission::{Admission, Verdict};
use crate::shard::Local;
use crate::socket;

/// Connections that the kernel completes before they are accepted. Reason: a whole fleet reconnects at once.
const BACKLOG: i32 = 4_096;

/// Connections accepted before the rest of the shard has its turn.
const ACCEPTS_PER_TURN: usize = 64;

/// The first pause after an accept failed for want of a descriptor or memory; doubled up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Binds `count` listening sockets to one address; with port 0 the first one finds a port for all.
///
/// The first is bound without SO_REUSEPORT: two servers of one user would otherwise share a port silently, and each would refuse
/// half of the other's sessions.
pub(crate) fn bind(address: SocketAddr, count: usize, limits: &Limits) -> io::Result<Vec<TcpListener>> {
    let first = socket(address, limits)?;
    first.bind(&address.into())?;
    if count > 1 {
        first.set_reuse_port(true)?;
    }
    first.listen(BACKLOG)?;
    let first = TcpListener::from(first);
    let bound = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        let next = socket(bound, limits)?;
        next.set_reuse_port(true)?;
        next.bind(&bound.into())?;
        next.listen(BACKLOG)?;
        listeners.push(next.into());
    }
    Ok(listeners)
}

/// A close-on-exec, non-blocking socket that a port in TIME_WAIT does not stop, with what each accepted connection inherits of it:
/// answers leave at once, and a peer that acknowledges nothing for two keep-alive comments is given up (a half-open connection must
/// not keep its session alive).
fn socket(address: SocketAddr, limits: &Limits) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some((limits.keep_alive * 2).max(limits.close_grace)))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A listening socket with every descriptor that accepting from it will need, taken before anybody is let in: a crowd that leaves the
/// process none may come as soon as the first shard accepts.
pub(crate) struct Entrance {
    listener: TcpListener,
    watched: TcpListener,
    spare: OwnedFd,
}

impl Entrance {
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        Ok(Self { watched: listener.try_clone()?, spare: listener.try_clone()?.into(), listener })
    }
}

/// Accepts connections until the shard drains: then takes what the kernel had completed, and closes the listener.
pub(crate) async fn accept(local: Rc<Local>, entrance: Entrance) -> io::Result<()> {
    let Entrance { listener, watched, spare } = entrance;
    let watched = monoio::net::TcpListener::from_std(watched)?;
    let mut shortage = Shortage { spare: Some(spare), pause: None };
    let mut admission = Admission::new(local.admission_wait());
    while !local.draining() {
        local.unless_draining(watched.readable(false)).await;
        loop {
            match accept_turn(&local, &listener, &mut admission) {
                Turned::Emptied => break,
                Turned::MoreWaiting => local.turn().pass().await,
                Turned::Short(error) => {
                    let pause = shortage.met(&listener, error);
                    local.unless_draining(monoio::time::sleep(pause)).await;
                    break;
                }
            }
            shortage.over();
        }
    }
    Ok(())
}

enum Turned {
    Emptied,
    MoreWaiting,
    Short(Errno),
}

fn accept_turn(local: &Rc<Local>, listener: &TcpListener, admission: &mut Admission) -> Turned {
    let now = local.now();
    for _ in 0..ACCEPTS_PER_TURN {
        match socket::accept(listener) {
            Ok(accepted) => match admission.next(now) {
                Verdict::Take => local.open(accepted),
                Verdict::Shed { within } => local.shed(accepted, within),
            },
            Err(Errno::AGAIN) => {
                let shed = admission.emptied();
                if shed > 0 {
                    tracing::warn!(shed, "too many connected at once: turned away, to come back by and by");
                }
                return Turned::Emptied;
            }
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => return Turned::Short(error),
            // The rest are errors of the connection, which is gone: accept(2), "Error handling".
            Err(_) => {}
        }
    }
    Turned::MoreWaiting
}

/// What to do while the process has no descriptor left: say it once, refuse whoever waits (with the one descriptor kept back for
/// this), pause longer and longer.
struct Shortage {
    spare: Option<OwnedFd>,
    pause: Option<Duration>,
}

impl Shortage {
    /// Refuses the waiting connections and says how long to pause.
    fn met(&mut self, listener: &TcpListener, error: Errno) -> Duration {
        if self.pause.is_none() {
            tracing::warn!(%error, "no descriptors left: refusing connections until some are free");
        }
        let mut refused = 0_usize;
        while refused < ACCEPTS_PER_TURN && self.spare.take().is_some() {
            if let Ok(waiting) = socket::accept(listener) {
                socket::refuse(waiting);
                refused += 1;
            } else {
                refused = ACCEPTS_PER_TURN;
            }
            self.spare = listener.try_clone().ok().map(OwnedFd::from);
        }
        let pause = self.pause.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MAX));
        self.pause = Some(pause);
        pause
    }

    fn over(&mut self) {
        if self.pause.take().is_some() {
            tracing::info!("descriptors are free again: accepting connections");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_port() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    #[test]
    fn every_shard_listens_on_the_port_that_the_first_one_found() {
        let listeners = bind(any_port(), 3, &Limits::default()).expect("bind");
        let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("address").port()).collect();
        assert!(ports.iter().all(|&port| port == ports[0] && port != 0), "{ports:?}");
    }

    #[test]
    fn a_second_server_on_the_port_is_refused_whatever_the_number_of_shards() {
        for count in [1, 2] {
            let listeners = bind(any_port(), 2, &Limits::default()).expect("bind");
            let taken = listeners[0].local_addr().expect("address");
            let error = bind(taken, count, &Limits::default()).expect_err("the port is in use");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn what_is_accepted_carries_the_options_of_its_listener() {
        let limits = Limits { keep_alive: Duration::from_secs(7), ..Limits::default() };
        for listener in bind(any_port(), 2, &limits).expect("bind") {
            let accepted = loop {
                let _peer = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
                // The kernel may have given it to the other one.
                if let Ok(accepted) = socket::accept(&listener) {
                    break accepted;
                }
            };
            assert_eq!(rustix::net::sockopt::tcp_nodelay(&accepted), Ok(true));
            assert_eq!(rustix::net::sockopt::tcp_user_timeout(&accepted), Ok(14_000));
        }
    }

    #[test]
    fn listening_sockets_are_not_inherited() {
        let listeners = bind(any_port(), 2, &Limits::default()).expect("bind");
        for listener in &listeners {
            let flags = rustix::io::fcntl_getfd(listener).expect("flags");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
