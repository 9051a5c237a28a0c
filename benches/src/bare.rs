//! The physical limit of a reconnect: accept, read, write, read the end and close, on one thread with epoll, and nothing else.
//!
//! Never looks at what is asked.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Events taken at once.
const BATCH: usize = 256;

/// Answers whatever arrives on a connection with `body`, until the peer closes it.
pub(crate) fn serve(listener: &TcpListener, body: &[u8]) -> io::Result<()> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let name = |descriptor: &dyn AsRawFd| u64::from(descriptor.as_raw_fd().unsigned_abs());
    let entrance = name(listener);
    epoll::add(&epoll, listener, EventData::new_u64(entrance), EventFlags::IN)?;
    let mut connections: HashMap<u64, TcpStream> = HashMap::new();
    let mut events: Vec<Event> = Vec::with_capacity(BATCH);
    loop {
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let which = event.data.u64();
            if which == entrance {
                while let Some(socket) = accept(listener)? {
                    epoll::add(&epoll, &socket, EventData::new_u64(name(&socket)), EventFlags::IN)?;
                    connections.insert(name(&socket), socket);
                }
            } else if connections.get_mut(&which).is_some_and(|socket| !answered(socket, &answer)) {
                connections.remove(&which);
            }
        }
    }
}

/// A connection, unless nobody waits.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((socket, _)) => {
            socket.set_nodelay(true)?;
            Ok(Some(socket))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Answers a request that has arrived; says whether the peer is still there.
fn answered(socket: &mut TcpStream, answer: &[u8]) -> bool {
    let mut request = [0; 4096];
    matches!(socket.read(&mut request), Ok(read) if read > 0) && socket.write_all(answer).is_ok()
}
