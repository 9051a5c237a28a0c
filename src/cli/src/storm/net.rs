//! Connections to the target: from many source addresses, cut in each way that a network cuts them.
//!
//! Never knows what goes over them.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use monoio::net::TcpStream;
use rejoin::shell::{self, Received, Written};
use rejoin_client::Wire;
use rejoin_proto::client::{ConnId, Ended};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::timeline::Breaks;
use crate::target::Target;

/// Source addresses that loopback connections come from, beginning with 127.0.0.2. Reason: one address has 28,000 ports by default,
/// of which those in TIME_WAIT are taken as well.
const SOURCES: u32 = 64;
/// Receive buffer of a slow reader's socket, in bytes. Reason: what the kernel takes in for it is not slow.
const SLOW_BUFFER: usize = 32 << 10;

/// Bytes read at once while TLS begins.
const HANDSHAKE: usize = 8 << 10;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: TcpStream,
    wire: Wire,
}

/// What a wait brought.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// So many bytes, in the buffer.
    Bytes(usize),
    /// The peer's end, orderly.
    End,
    /// The connection is gone.
    Gone,
    /// Nothing until then.
    Nothing,
}

/// Waits for something, but no longer than until `at`.
pub(crate) async fn before<F: Future>(at: Instant, future: F) -> Option<F::Output> {
    monoio::time::timeout(at.saturating_duration_since(Instant::now()), future).await.ok()
}

/// Waits until `at`.
pub(crate) async fn until(at: Instant) {
    let left = at.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        monoio::time::sleep(left).await;
    }
}

/// Waits until one of these has something to read, but no longer than until then.
pub(crate) async fn any_readable(conns: &[(ConnId, Conn)], at: Instant) {
    // An error of the watch shows itself in the read that follows.
    match conns {
        [] => until(at).await,
        [(_, conn)] => drop(before(at, conn.stream.readable(false)).await),
        conns => {
            let mut watches: Vec<_> = conns.iter().map(|(_, conn)| Box::pin(conn.stream.readable(false))).collect();
            let first = poll_fn(|context| match watches.iter_mut().any(|watch| watch.as_mut().poll(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            before(at, first).await;
        }
    }
}

/// Where a session's connections come from: an address of loopback's own where the target is there too.
fn source(target: SocketAddr, session: u32) -> Option<SocketAddr> {
    match target.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => {
            let last = Ipv4Addr::new(127, 0, 0, 2).to_bits() + session % SOURCES;
            Some(SocketAddr::from((Ipv4Addr::from_bits(last), 0)))
        }
        _ => None,
    }
}

impl Conn {
    /// Connects, within this time.
    pub(crate) async fn open(target: &Target, session: u32, slow: bool, within: Duration) -> io::Result<Self> {
        let (address, within) = (target.address, Instant::now() + within);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if slow {
            socket.set_recv_buffer_size(SLOW_BUFFER)?;
        }
        if let Some(source) = source(address, session) {
            // Ports of connections that ended may be used again at once, as ephemeral ones are.
            socket.set_reuse_address(true)?;
            socket.bind(&source.into())?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let stream = TcpStream::from_std(socket.into())?;
        match before(within, stream.writable(false)).await {
            None => return Err(io::ErrorKind::TimedOut.into()),
            Some(ready) => ready?,
        }
        shell::take_error(&stream)?;
        let mut conn = Self { stream, wire: Wire::new(&target.endpoint)? };
        conn.begin(within).await?;
        Ok(conn)
    }

    /// Lets TLS begin, where the target wants it.
    async fn begin(&mut self, at: Instant) -> io::Result<()> {
        loop {
            let pending = self.wire.pending()?;
            self.write_all(&pending, at).await?;
            if self.wire.is_ready() {
                return Ok(());
            }
            let mut buffer = vec![0; HANDSHAKE];
            match shell::receive(&self.stream, &mut buffer) {
                // The server says nothing unasked behind its own part of the beginning.
                Received::Bytes(count) => drop(self.wire.open(Cow::Borrowed(&buffer[..count]))?),
                Received::End => return Err(io::ErrorKind::UnexpectedEof.into()),
                Received::Gone => return Err(io::ErrorKind::ConnectionReset.into()),
                Received::Blocked => match before(at, self.stream.readable(false)).await {
                    None => return Err(io::ErrorKind::TimedOut.into()),
                    Some(ready) => ready?,
                },
            }
        }
    }

    /// Writes a request, until then; gives the bytes that it took.
    pub(crate) async fn write(&mut self, request: Bytes, at: Instant) -> io::Result<usize> {
        let sealed = self.wire.seal(request)?;
        self.write_all(&sealed, at).await?;
        Ok(sealed.len())
    }

    async fn write_all(&self, mut bytes: &[u8], at: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match shell::send(&self.stream, bytes) {
                Written::Bytes(count) => bytes = &bytes[count..],
                Written::Gone => return Err(io::ErrorKind::ConnectionReset.into()),
                Written::Blocked => match before(at, self.stream.writable(false)).await {
                    None => return Err(io::ErrorKind::TimedOut.into()),
                    Some(ready) => ready?,
                },
            }
        }
        Ok(())
    }

    /// Reads what is there.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Arrived {
        match shell::receive(&self.stream, buffer) {
            Received::Bytes(count) => Arrived::Bytes(count),
            Received::End => Arrived::End,
            Received::Gone => Arrived::Gone,
            Received::Blocked => Arrived::Nothing,
        }
    }

    /// What was read, as an HTTP client reads it.
    pub(crate) fn open_bytes<'a>(&mut self, bytes: Cow<'a, [u8]>) -> io::Result<Cow<'a, [u8]>> {
        self.wire.open(bytes)
    }

    /// What the peer's end means.
    pub(crate) fn end(&mut self) -> Ended {
        self.wire.fin()
    }

    /// Breaks it; a silent break gives it back, to be kept.
    pub(crate) fn cut(self, how: Breaks) -> Option<Self> {
        match how {
            Breaks::Rst => shell::reset_on_close(&self.stream),
            Breaks::Fin => shell::finish(&self.stream),
            Breaks::Silence => return Some(self),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_many_addresses_and_others_from_the_systems_choice() {
        let target = SocketAddr::from(([127, 0, 0, 1], 80));
        let sources: std::collections::HashSet<_> = (0..1_000).map(|session| source(target, session)).collect();
        assert_eq!(sources.len(), SOURCES as usize);
        assert!(
            sources.iter().all(|source| source.is_some_and(|source| source.ip().is_loopback() && source.ip() != target.ip()))
        );
        assert_eq!(source(SocketAddr::from(([192, 0, 2, 1], 80)), 1), None);
    }
}
