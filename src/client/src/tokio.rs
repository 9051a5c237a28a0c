//! Sessions on tokio: each is a task, and each of its connections another.
//!
//! ```
//! # use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
//! # struct Echo;
//! # impl Handler for Echo {
//! #     async fn initialize(&self, _: &Session, _: &Json) -> Result<Json, RpcError> {
//! #         Ok(serde_json::json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "e", "version": "1" } }).into())
//! #     }
//! #     async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
//! #         Ok(call.params::<serde_json::Value>()?.into())
//! #     }
//! # }
//! # let server = Server::builder().shards(1).serve(|| Echo)?;
//! # let url = format!("http://{}/mcp", server.local_addr());
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let (client, _events) = rejoin_client::tokio::connect(&url, rejoin_client::Options::default()).await?;
//! let outcome = client.call("echo", serde_json::json!({ "hello": "world" })).await;
//! assert_eq!(outcome.result(), Some(&br#"{"hello":"world"}"#[..]));
//! client.end().await;
//! # server.shutdown(std::time::Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rejoin_proto::client::Observer;
use tokio::net::TcpStream;

use crate::events::Events;
use crate::handle::Client;
use crate::line::{Line, READ, Socket, carry};
use crate::options::{Endpoint, Options};
use crate::session::{ConnectError, Runtime, Session, settle};

/// Begins a session with the server at `url` (`http` or `https`), on the present tokio runtime.
pub async fn connect(url: &str, options: Options) -> Result<(Client, Events), ConnectError> {
    connect_observed(url, options, ()).await
}

/// The same, with someone who sees every answer's head and every event as they arrive.
pub async fn connect_observed(
    url: &str,
    options: Options,
    observer: impl Observer + Send + 'static,
) -> Result<(Client, Events), ConnectError> {
    let (session, events, begun) = Session::new(url, options, Tokio, observer).map_err(ConnectError::Endpoint)?;
    tokio::spawn(session.run());
    Ok((settle(begun).await?, events))
}

struct Tokio;

impl Runtime for Tokio {
    type Sleep = tokio::time::Sleep;

    fn sleep(&self, time: Duration) -> Self::Sleep {
        tokio::time::sleep(time)
    }

    fn connect(&self, target: Arc<Endpoint>, line: Line) {
        tokio::spawn(carry::<TcpStream>(target, line));
    }
}

impl Socket for TcpStream {
    async fn connect(target: &Endpoint) -> io::Result<Self> {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn readable(&self) -> io::Result<()> {
        TcpStream::readable(self).await
    }

    async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; READ];
        match self.try_read(&mut buffer) {
            Ok(0) => Ok(None),
            Ok(read) => {
                buffer.truncate(read);
                Ok(Some(buffer))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(Vec::new())),
            Err(error) => Err(error),
        }
    }

    async fn write(&mut self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            self.writable().await?;
            match self.try_write(&bytes) {
                Ok(written) => drop(bytes.split_to(written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
