//! Sessions on a thread of monoio: each is a task, and each of its connections another.
//!
//! Names are resolved by the system, which holds the thread up meanwhile; addresses need no resolving.

use std::future::Future;
use std::io;
use std::net::ToSocketAddrs;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use ::monoio::net::TcpStream;
use bytes::Bytes;
use rejoin_proto::client::Observer;

use crate::events::Events;
use crate::handle::Client;
use crate::line::{Line, READ, Socket, carry};
use crate::options::{Endpoint, Options};
use crate::session::{ConnectError, Runtime, Session, settle};

/// Begins a session with the server at `url` (`http` or `https`), on the present thread's monoio runtime, whose timer must be enabled.
pub async fn connect(url: &str, options: Options) -> Result<(Client, Events), ConnectError> {
    connect_observed(url, options, ()).await
}

/// The same, with someone who sees every answer's head and every event as they arrive.
pub async fn connect_observed(
    url: &str,
    options: Options,
    observer: impl Observer + 'static,
) -> Result<(Client, Events), ConnectError> {
    let (session, events, begun) = Session::new(url, options, Monoio, observer).map_err(ConnectError::Endpoint)?;
    ::monoio::spawn(session.run());
    Ok((settle(begun).await?, events))
}

struct Monoio;

impl Runtime for Monoio {
    type Sleep = Pin<Box<dyn Future<Output = ()>>>;

    fn sleep(&self, time: Duration) -> Self::Sleep {
        Box::pin(::monoio::time::sleep(time))
    }

    fn connect(&self, target: Arc<Endpoint>, line: Line) {
        ::monoio::spawn(carry::<TcpStream>(target, line));
    }
}

impl Socket for TcpStream {
    async fn connect(target: &Endpoint) -> io::Result<Self> {
        let mut connected = Err(io::ErrorKind::NotFound.into());
        for address in (target.host.as_str(), target.port).to_socket_addrs()? {
            connected = TcpStream::connect_addr(address).await;
            if connected.is_ok() {
                break;
            }
        }
        let stream = connected?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn readable(&self) -> io::Result<()> {
        // Relaxed, the epoll driver returns at once.
        TcpStream::readable(self, false).await
    }

    async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (read, buffer) = AsyncReadRent::read(self, Vec::with_capacity(READ)).await;
        Ok(if read? == 0 { None } else { Some(buffer) })
    }

    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write_all(Vec::from(bytes)).await.0.map(drop)
    }
}
