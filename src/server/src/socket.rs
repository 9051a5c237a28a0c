//! Direct calls on sockets: read, write, accept and close without waiting, and the options that our sockets carry.
//!
//! Never waits (the runtime says when a socket is ready) and never decides what to read, write or close.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use monoio::net::TcpStream;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, sockopt};

/// What a read gave.
#[derive(Debug)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// A FIN: there will be no more.
    End,
    /// Nothing now.
    Blocked,
    /// A reset or another error: the connection is gone.
    Gone,
}

/// What a write took.
#[derive(Debug)]
pub enum Written {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Blocked,
    /// A reset or another error: the connection is gone.
    Gone,
}

/// The stream's descriptor, for a call that does not keep it.
#[expect(unsafe_code, reason = "monoio's stream offers its descriptor as a number only")]
fn descriptor(stream: &TcpStream) -> BorrowedFd<'_> {
    // Needed because rustix's safe calls want a borrowed descriptor, and `TcpStream` is no `AsFd`.
    // SAFETY: `stream` owns the descriptor and closes it when it is dropped, which the borrow that the result carries forbids.
    unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) }
}

/// Reads what is there.
pub fn receive(stream: &TcpStream, buffer: &mut [u8]) -> Received {
    match retry_on_intr(|| rustix::net::recv(descriptor(stream), &mut *buffer, RecvFlags::DONTWAIT)) {
        Ok((0, _)) => Received::End,
        Ok((bytes, _)) => Received::Bytes(bytes),
        Err(Errno::AGAIN) => Received::Blocked,
        Err(_) => Received::Gone,
    }
}

/// How we write: without waiting, and a peer that is gone is an answer, not a signal (`SIGPIPE`).
const WRITING: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Writes what fits.
pub fn send(stream: &TcpStream, bytes: &[u8]) -> Written {
    written(retry_on_intr(|| rustix::net::send(descriptor(stream), bytes, WRITING)))
}

/// Writes what fits of several slices.
pub(crate) fn send_all(stream: &TcpStream, slices: &[IoSlice<'_>]) -> Written {
    written(retry_on_intr(|| rustix::net::sendmsg(descriptor(stream), slices, &mut SendAncillaryBuffer::default(), WRITING)))
}

fn written(sent: Result<usize, Errno>) -> Written {
    match sent {
        Ok(bytes) => Written::Bytes(bytes),
        Err(Errno::AGAIN) => Written::Blocked,
        Err(_) => Written::Gone,
    }
}

/// The error that a socket has to tell, if any: how an attempt to connect ended.
pub fn take_error(stream: &TcpStream) -> io::Result<()> {
    sockopt::socket_error(descriptor(stream))?.map_err(io::Error::from)
}

/// Sends a FIN after what was written. A peer that is gone already needs none.
pub fn finish(stream: &TcpStream) {
    let _ = rustix::net::shutdown(descriptor(stream), Shutdown::Write);
}

/// Makes the close that follows a reset, and drops what is still unsent.
pub fn reset_on_close(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(descriptor(stream), Some(Duration::ZERO));
}

/// A second descriptor of the same connection, close-on-exec, for another shard. The first one can then be closed at leisure,
/// whatever operations its runtime still has on it.
pub(crate) fn duplicate(stream: &TcpStream) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor(stream), 0)?)
}

/// Accepts one connection: close-on-exec, so that no child inherits it, and non-blocking, from its first moment.
pub(crate) fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| rustix::net::accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))
}

/// Closes an accepted connection with a reset: nothing of it was read.
pub(crate) fn refuse(socket: OwnedFd) {
    let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
}
