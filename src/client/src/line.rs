//! A connection's whole life, on any runtime: it is made, carries bytes both ways, and tells how it ended.
//!
//! Holds no buffer while nothing arrives. Never decides anything, and never looks into a byte.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_channel::mpsc;
use futures_util::future::{Either, select};
use futures_util::{SinkExt, StreamExt};
use rejoin_proto::client::{ConnId, Ended};

use crate::options::Endpoint;
use crate::wire::Wire;

/// Most that is read at once.
pub(crate) const READ: usize = 16 << 10;

/// A runtime's stream socket.
pub(crate) trait Socket: Sized {
    async fn connect(target: &Endpoint) -> io::Result<Self>;

    /// Waits until there is something to read, or the end. May be dropped.
    async fn readable(&self) -> io::Result<()>;

    /// Reads what is there, at most [`READ`] bytes; nothing where the wait was in vain, `None` at the end.
    async fn read(&mut self) -> io::Result<Option<Vec<u8>>>;

    async fn write(&mut self, bytes: Bytes) -> io::Result<()>;
}

/// A connection's ends towards its session. When `outbound` ends, the connection is to be closed.
pub(crate) struct Line {
    pub conn: ConnId,
    pub outbound: mpsc::UnboundedReceiver<Bytes>,
    pub inbound: mpsc::Sender<(ConnId, Arrival)>,
}

/// What a connection tells.
#[derive(Debug)]
pub(crate) enum Arrival {
    Opened,
    Bytes(Vec<u8>),
    Ended(Ended),
}

/// Carries a connection to its end.
pub(crate) async fn carry<S: Socket>(target: Arc<Endpoint>, line: Line) {
    let Line { conn, mut outbound, mut inbound } = line;
    let opened = {
        let opening = pin!(open::<S>(&target));
        // Nothing is sent before it is open: what ends here is the session's patience.
        match select(opening, outbound.next()).await {
            Either::Left((opened, _)) => opened,
            Either::Right(_) => return,
        }
    };
    let end = match opened {
        // The session may be gone, and then hears nothing.
        Ok((socket, wire)) => match inbound.send((conn, Arrival::Opened)).await {
            Ok(()) => move_bytes(socket, wire, conn, &mut outbound, &mut inbound).await,
            Err(_) => None,
        },
        Err(_) => Some(Ended::Failed),
    };
    if let Some(how) = end {
        let _ = inbound.send((conn, Arrival::Ended(how))).await;
    }
}

/// How the server ended the connection; `None` where the session did.
async fn move_bytes<S: Socket>(
    mut socket: S,
    mut wire: Wire,
    conn: ConnId,
    outbound: &mut mpsc::UnboundedReceiver<Bytes>,
    inbound: &mut mpsc::Sender<(ConnId, Arrival)>,
) -> Option<Ended> {
    loop {
        let next = {
            let ready = pin!(socket.readable());
            match select(outbound.next(), ready).await {
                Either::Left((sent, _)) => Err(sent),
                Either::Right((ready, _)) => Ok(ready),
            }
        };
        match next {
            // The session has closed the connection, or is gone.
            Err(None) => return None,
            Err(Some(request)) => {
                let written = match wire.seal(request) {
                    Ok(sealed) => socket.write(sealed).await,
                    Err(error) => Err(error),
                };
                match written {
                    Ok(()) => {}
                    // An answer may be there that says why: the next read finds it, or the connection's end.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    Err(_) => return Some(Ended::Reset),
                }
            }
            Ok(Err(_)) => return Some(Ended::Reset),
            Ok(Ok(())) => match read(&mut socket, &mut wire).await {
                Ok(Some(bytes)) if bytes.is_empty() => {}
                Ok(Some(bytes)) => inbound.send((conn, Arrival::Bytes(bytes))).await.ok()?,
                Ok(None) => return Some(wire.fin()),
                Err(_) => return Some(Ended::Reset),
            },
        }
    }
}

/// Connects, and speaks TLS where the target wants it.
async fn open<S: Socket>(target: &Endpoint) -> io::Result<(S, Wire)> {
    let mut socket = S::connect(target).await?;
    let mut wire = Wire::new(target)?;
    loop {
        write_pending(&mut socket, &mut wire).await?;
        if wire.is_ready() {
            return Ok((socket, wire));
        }
        socket.readable().await?;
        if read(&mut socket, &mut wire).await?.is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// What is there, as the machine reads it; `None` at the end.
async fn read<S: Socket>(socket: &mut S, wire: &mut Wire) -> io::Result<Option<Vec<u8>>> {
    let Some(bytes) = socket.read().await? else { return Ok(None) };
    let plain = wire.open(bytes.into())?.into_owned();
    // TLS answers some of what it reads by itself.
    write_pending(socket, wire).await?;
    Ok(Some(plain))
}

async fn write_pending<S: Socket>(socket: &mut S, wire: &mut Wire) -> io::Result<()> {
    let pending = wire.pending()?;
    if pending.is_empty() { Ok(()) } else { socket.write(pending.into()).await }
}
