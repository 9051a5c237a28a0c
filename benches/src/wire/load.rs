//! The load: blocking HTTP on as many threads as asked for, all on one processor.
//!
//! Never checks continuity: that is the tests' and the storm's.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use serde_json::{Value, json};

/// How long an answer may take: a hang is an error and not a figure.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of one read.
const READ: usize = 256 << 10;

/// A connection that asks and reads.
pub(crate) struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// The part of the buffer that was received and not used.
    unread: std::ops::Range<usize>,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    text: String,
}

impl Head {
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let fields = self.text.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn expect(self, status: &str) -> io::Result<Self> {
        if self.text.split(' ').nth(1) == Some(status) { Ok(self) } else { Err(io::Error::other(self.text)) }
    }
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, buffer: vec![0; 8 << 10], unread: 0..0 })
    }

    /// One that reads a lot at once.
    pub(crate) fn wide(address: SocketAddr) -> io::Result<Self> {
        let mut connection = Self::open(address)?;
        connection.buffer = vec![0; READ];
        Ok(connection)
    }

    /// One that is only held: it keeps a descriptor and no buffer.
    pub(crate) fn into_socket(self) -> TcpStream {
        self.socket
    }

    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.socket.write_all(request)
    }

    /// Sends a request, and reads the head of its answer, whose status must be this.
    pub(crate) fn ask(&mut self, request: &[u8], status: &str) -> io::Result<Head> {
        self.send(request)?;
        self.head()?.expect(status)
    }

    fn fill(&mut self) -> io::Result<usize> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end == self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
            if self.unread.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let read = self.socket.read(&mut self.buffer[self.unread.end..])?;
        self.unread.end += read;
        Ok(read)
    }

    /// Reads on until these bytes came, and gives all up to them.
    pub(crate) fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut looked = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(at) = unread[looked..].windows(end.len()).position(|window| window == end) {
                let whole = unread[..looked + at + end.len()].to_vec();
                self.unread.start += whole.len();
                return Ok(whole);
            }
            looked = unread.len().saturating_sub(end.len() - 1);
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn head(&mut self) -> io::Result<Head> {
        let text = String::from_utf8_lossy(&self.until(b"\r\n\r\n")?).into_owned();
        Ok(Head { text })
    }

    /// Leaves out so many bytes.
    fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        loop {
            let here = bytes.min(self.unread.len());
            self.unread.start += here;
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads a body to its end, and says how many bytes it had.
    pub(crate) fn drain(&mut self, head: &Head) -> io::Result<usize> {
        if let Some(length) = head.value("content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            return self.skip(length).map(|()| length);
        }
        let mut total = 0;
        loop {
            let line = self.until(b"\r\n")?;
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            self.skip(size + 2)?;
            total += size;
            if size == 0 {
                return Ok(total);
            }
        }
    }

    /// Takes what comes until the other side closes, without a copy of it, so that we are quicker than whoever sends; says how much it was.
    pub(crate) fn discard(&mut self) -> io::Result<usize> {
        self.discard_some(usize::MAX)
    }

    /// The same until so many bytes came.
    pub(crate) fn discard_some(&mut self, enough: usize) -> io::Result<usize> {
        let mut total = enough.min(self.unread.len());
        self.unread.start += total;
        // The kernel writes nothing to it.
        let mut target = vec![0; READ];
        loop {
            if total >= enough {
                return Ok(total);
            }
            let most = READ.min(enough - total);
            match recv(&self.socket, &mut target[..most], RecvFlags::TRUNC) {
                Ok((_, 0)) => return Ok(total),
                Ok((_, received)) => total += received,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes up to so many bytes of what there is; 0 at the end.
    pub(crate) fn sip(&mut self, most: usize) -> io::Result<usize> {
        self.unread = 0..0;
        self.buffer.resize(most, 0);
        self.socket.read(&mut self.buffer)
    }

    /// Reads a body to its end, and keeps it.
    pub(crate) fn body(&mut self, head: &Head) -> io::Result<String> {
        let mut body = Vec::new();
        if let Some(length) = head.value("content-length") {
            let length: usize = length.parse().map_err(io::Error::other)?;
            while body.len() < length {
                self.keep(length - body.len(), &mut body)?;
            }
        } else {
            loop {
                let line = self.until(b"\r\n")?;
                let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).map_err(io::Error::other)?;
                let end = body.len() + size;
                while body.len() < end {
                    self.keep(end - body.len(), &mut body)?;
                }
                self.skip(2)?;
                if size == 0 {
                    break;
                }
            }
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn keep(&mut self, most: usize, body: &mut Vec<u8>) -> io::Result<()> {
        if self.unread.is_empty() && self.fill()? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let here = most.min(self.unread.len());
        body.extend_from_slice(&self.buffer[self.unread.start..self.unread.start + here]);
        self.unread.start += here;
        Ok(())
    }
}

/// A GET as bytes.
pub(crate) fn get(address: SocketAddr, path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{fields}\r\n").into_bytes()
}

/// The same GET, with the wish that the connection ends with the answer.
pub(crate) fn closing(mut get: Vec<u8>) -> Vec<u8> {
    get.truncate(get.len() - 2);
    get.extend_from_slice(b"Connection: close\r\n\r\n");
    get
}

/// A session of an MCP server.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    address: SocketAddr,
    fields: String,
}

impl Session {
    /// Initializes one.
    pub(crate) fn begin(address: SocketAddr) -> io::Result<Self> {
        let mut session = Self { address, fields: String::new() };
        let mut connection = Connection::open(address)?;
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "wire", "version": "0" }
        });
        let head = connection
            .ask(&session.post(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })), "200")?;
        connection.body(&head)?;
        let id = head.value("mcp-session-id").ok_or_else(|| io::Error::other("no session id"))?;
        session.fields = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
        let confirmed = session.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let head = connection.ask(&confirmed, "202")?;
        connection.drain(&head)?;
        Ok(session)
    }

    /// A POST of this session.
    pub(crate) fn post(&self, message: &Value) -> Vec<u8> {
        let body = message.to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.fields,
            body.len()
        )
        .into_bytes()
    }

    /// A `tools/call`.
    pub(crate) fn call(&self, id: u64, tool: &str, arguments: Value) -> Vec<u8> {
        self.request(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    fn request(&self, id: u64, method: &str, params: &Value) -> Vec<u8> {
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    /// Calls a tool, and gives its answer as it came.
    pub(crate) fn answer(&self, id: u64, tool: &str, arguments: Value) -> io::Result<String> {
        let mut connection = Connection::wide(self.address)?;
        let head = connection.ask(&self.call(id, tool, arguments), "200")?;
        connection.body(&head)
    }

    /// Begins a call and goes away once an event with an id has come; gives that id.
    pub(crate) fn begin_call(&self, id: u64, params: &Value) -> io::Result<String> {
        let mut connection = Connection::open(self.address)?;
        connection.ask(&self.request(id, "tools/call", params), "200")?;
        connection.until(b"id:")?;
        let id = connection.until(b"\n")?;
        Ok(String::from_utf8_lossy(&id).trim().into())
    }

    /// A GET of its standalone stream.
    pub(crate) fn listen(&self) -> Vec<u8> {
        get(self.address, "/mcp", &self.fields)
    }

    /// A GET that resumes after this event.
    pub(crate) fn resume(&self, cursor: &str) -> Vec<u8> {
        get(self.address, "/mcp", &format!("{}Last-Event-ID: {cursor}\r\n", self.fields))
    }
}

/// The first id of a stream.
pub(crate) fn first_id(stream: &str) -> io::Result<&str> {
    let id = stream
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .or_else(|| stream.lines().find_map(|line| line.strip_prefix("id:")));
    id.ok_or_else(|| io::Error::other("a stream without ids"))
}
