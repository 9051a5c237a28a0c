//! Requests as tests write them, field by field.
//!
//! Never adds what was not asked for, and never keeps back what is wrong: a test of refusals needs both.

use std::net::SocketAddr;

use serde_json::Value;

/// A request, to be sent as it is written here.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    version: &'static str,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request for `/mcp` with a `Host` and no body.
    pub fn new(method: &str, host: SocketAddr) -> Self {
        Self {
            method: method.to_owned(),
            target: "/mcp".to_owned(),
            version: "HTTP/1.1",
            fields: vec![("Host".to_owned(), host.to_string())],
            body: Vec::new(),
        }
    }

    /// A GET that accepts a stream.
    pub fn get(host: SocketAddr) -> Self {
        Self::new("GET", host).with("Accept", "text/event-stream")
    }

    /// A POST of these bytes that accepts what the protocol asks for.
    pub fn post_bytes(host: SocketAddr, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", host)
            .with("Accept", "application/json, text/event-stream")
            .with("Content-Type", "application/json")
            .body(body)
    }

    /// A POST of this message.
    pub fn post(host: SocketAddr, message: &Value) -> Self {
        Self::post_bytes(host, message.to_string())
    }

    /// The same with one field more.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without any such field.
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self
    }

    /// The same with this field in place of any of its name.
    pub fn set(self, name: &str, value: &str) -> Self {
        self.without(name).with(name, value)
    }

    /// The same for another target.
    pub fn target(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// The same in another version of HTTP.
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// The same with this body and its length.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.set("Content-Length", &length)
    }

    /// Its bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Its head's bytes alone, the empty line included.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} {}\r\n", self.method, self.target, self.version).into_bytes();
        for (name, value) in &self.fields {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_as_it_is_written() {
        let host: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        let request = Request::get(host).with("Last-Event-ID", "a").with("Last-Event-ID", "b").without("accept");
        let text = String::from_utf8(request.bytes()).expect("text");
        assert_eq!(text, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:1\r\nLast-Event-ID: a\r\nLast-Event-ID: b\r\n\r\n");
    }
}
