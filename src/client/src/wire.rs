//! What stands between a socket's bytes and the machine's: nothing, or TLS. A machine of its own, so that every runtime has the same.
//!
//! Never reads or writes a socket.

use std::io::{self, Read, Write};

use bytes::Bytes;
use rejoin_proto::client::Ended;

use crate::options::Target;

/// The two forms of a connection.
pub(crate) enum Wire {
    Plain,
    Tls(Box<rustls::ClientConnection>),
}

impl Wire {
    pub(crate) fn new(target: &Target) -> io::Result<Self> {
        let Some((config, name)) = &target.tls else { return Ok(Self::Plain) };
        let connection = rustls::ClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(connection)))
    }

    /// Whether requests may be sent.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Plain => true,
            Self::Tls(connection) => !connection.is_handshaking(),
        }
    }

    /// What TLS itself wants to write.
    pub(crate) fn pending(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        if let Self::Tls(connection) = self {
            while connection.wants_write() {
                connection.write_tls(&mut out)?;
            }
        }
        Ok(out)
    }

    /// A request as it goes into the socket.
    pub(crate) fn seal(&mut self, request: Bytes) -> io::Result<Bytes> {
        let Self::Tls(connection) = self else { return Ok(request) };
        let mut out = Vec::with_capacity(request.len() + 512);
        // rustls buffers a bounded part at a time.
        let mut rest = &request[..];
        while !rest.is_empty() {
            let taken = connection.writer().write(rest)?;
            rest = &rest[taken..];
            while connection.wants_write() {
                connection.write_tls(&mut out)?;
            }
        }
        Ok(out.into())
    }

    /// Bytes of the socket as the machine reads them; none where they were TLS's own.
    pub(crate) fn open(&mut self, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let Self::Tls(connection) = self else { return Ok(bytes) };
        let mut rest = &bytes[..];
        let mut plain = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            if connection.read_tls(&mut rest)? == 0 {
                break;
            }
            let state = connection.process_new_packets().map_err(io::Error::other)?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            connection.reader().read_exact(&mut plain[before..])?;
        }
        bytes.clear();
        Ok(plain)
    }

    /// What a FIN means. Without TLS's own goodbye anybody may have sent it.
    pub(crate) fn fin(&mut self) -> Ended {
        match self {
            Self::Plain => Ended::Fin,
            Self::Tls(connection) => match connection.process_new_packets() {
                Ok(state) if state.peer_has_closed() => Ended::Fin,
                _ => Ended::Reset,
            },
        }
    }
}
