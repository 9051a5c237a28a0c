//! What stands between a socket's bytes and the machine's: nothing, or TLS. A machine of its own, so that every runtime has the same.
//!
//! Never reads or writes a socket.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use bytes::Bytes;
use rejoin_proto::client::Ended;

use crate::options::Endpoint;

/// A connection's bytes on their way between the socket and the machine.
#[derive(Debug)]
pub struct Wire(Form);

#[derive(Debug)]
enum Form {
    Plain,
    Tls(Box<rustls::ClientConnection>),
}

impl Wire {
    /// For a new connection to this endpoint.
    pub fn new(endpoint: &Endpoint) -> io::Result<Self> {
        let Some((config, name)) = &endpoint.tls else { return Ok(Self(Form::Plain)) };
        let connection = rustls::ClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        Ok(Self(Form::Tls(Box::new(connection))))
    }

    /// Whether requests may be sent.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Form::Plain => true,
            Form::Tls(connection) => !connection.is_handshaking(),
        }
    }

    /// What TLS itself wants to write.
    pub fn pending(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        if let Form::Tls(connection) = &mut self.0 {
            while connection.wants_write() {
                connection.write_tls(&mut out)?;
            }
        }
        Ok(out)
    }

    /// A request as it goes into the socket.
    pub fn seal(&mut self, request: Bytes) -> io::Result<Bytes> {
        let Form::Tls(connection) = &mut self.0 else { return Ok(request) };
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
    pub fn open<'a>(&mut self, bytes: Cow<'a, [u8]>) -> io::Result<Cow<'a, [u8]>> {
        let Form::Tls(connection) = &mut self.0 else { return Ok(bytes) };
        let mut rest = &bytes[..];
        let mut plain = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            if connection.read_tls(&mut rest)? == 0 {
                break;
            }
            let state = connection.process_new_packets().map_err(not_tls)?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            connection.reader().read_exact(&mut plain[before..])?;
        }
        Ok(plain.into())
    }

    /// What a FIN means. Without TLS's own goodbye anybody may have sent it.
    pub fn fin(&mut self) -> Ended {
        match &mut self.0 {
            Form::Plain => Ended::Fin,
            Form::Tls(connection) => match connection.process_new_packets() {
                Ok(state) if state.peer_has_closed() => Ended::Fin,
                _ => Ended::Reset,
            },
        }
    }
}

/// What the peer speaks is no TLS, or not what is trusted.
fn not_tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
