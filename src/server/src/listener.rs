//! Where connections come in: one listening socket a shard on one address, and the loop that accepts from it.
//!
//! Never waits inside an accept (readiness first, then a non-blocking call, so that nothing accepted can be lost), and never spins
//! when the process has no descriptor left.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

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
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let first = socket(address)?;
    first.bind(&address.into())?;
    if count > 1 {
        first.set_reuse_port(true)?;
    }
    first.listen(BACKLOG)?;
    let first = TcpListener::from(first);
    let bound = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        let next = socket(bound)?;
        next.set_reuse_port(true)?;
        next.bind(&bound.into())?;
        next.listen(BACKLOG)?;
        listeners.push(next.into());
    }
    Ok(listeners)
}

/// A close-on-exec, non-blocking socket that a port in TIME_WAIT does not stop.
fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Accepts connections until the shard drains: then takes what the kernel had completed, and closes the listener.
pub(crate) async fn accept(local: Rc<Local>, listener: TcpListener) -> io::Result<()> {
    socket::prepare(&listener, local.user_timeout())?;
    let watched = monoio::net::TcpListener::from_std(listener.try_clone()?)?;
    let mut shortage = Shortage::new(&listener);
    while !local.draining() {
        local.unless_draining(watched.readable(false)).await;
        loop {
            match accept_turn(&local, &listener) {
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

fn accept_turn(local: &Rc<Local>, listener: &TcpListener) -> Turned {
    for _ in 0..ACCEPTS_PER_TURN {
        match socket::accept(listener) {
            Ok(accepted) => local.open(accepted),
            Err(Errno::AGAIN) => return Turned::Emptied,
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
    fn new(listener: &TcpListener) -> Self {
        Self { spare: listener.try_clone().ok().map(OwnedFd::from), pause: None }
    }

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
        let listeners = bind(any_port(), 3).expect("bind");
        let ports: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("address").port()).collect();
        assert!(ports.iter().all(|&port| port == ports[0] && port != 0), "{ports:?}");
    }

    #[test]
    fn a_second_server_on_the_port_is_refused_whatever_the_number_of_shards() {
        for count in [1, 2] {
            let listeners = bind(any_port(), 2).expect("bind");
            let taken = listeners[0].local_addr().expect("address");
            let error = bind(taken, count).expect_err("the port is in use");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn what_is_accepted_carries_the_options_of_its_listener() {
        let listener = bind(any_port(), 1).expect("bind").remove(0);
        socket::prepare(&listener, Duration::from_secs(7)).expect("options");
        let peer = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let accepted = socket::accept(&listener).expect("accept");
        assert_eq!(rustix::net::sockopt::tcp_nodelay(&accepted), Ok(true));
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(&accepted), Ok(7_000));
        drop(peer);
    }

    #[test]
    fn listening_sockets_are_not_inherited() {
        let listeners = bind(any_port(), 2).expect("bind");
        for listener in &listeners {
            let flags = rustix::io::fcntl_getfd(listener).expect("flags");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
