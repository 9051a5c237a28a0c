//! The server under test: its address, and what every request to it carries.
//!
//! Refuses a machine that is not this one, unless it is told that it is the user's own: a storm is an attack on anybody else.

use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};

/// A target.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its URL as it was given.
    pub(crate) url: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    host: String,
    path: String,
    /// Fields of the user's own, as lines.
    fields: String,
}

/// A request's place in a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Of<'a> {
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<&'a str>,
    /// `MCP-Protocol-Version`.
    pub(crate) revision: Option<&'a str>,
    /// `Last-Event-ID`.
    pub(crate) cursor: Option<&'a str>,
}

impl Target {
    /// Reads a URL, finds its address, and asks whether it may be stormed.
    pub(crate) fn new(url: &str, fields: &[(String, String)], owned: bool) -> Result<Self, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(format!("{url}: only http:// can be stormed; in front of TLS, storm the server behind it"));
        };
        let (host, path) = rest.find(['/', '?']).map_or((rest, "/"), |at| rest.split_at(at));
        if host.is_empty() || host.contains('@') || path.contains(['#', ' ']) {
            return Err(format!("{url} is no URL of the form http://HOST:PORT/PATH"));
        }
        let with_port =
            if host.rsplit(']').next().is_some_and(|end| end.contains(':')) { host.to_owned() } else { format!("{host}:80") };
        let found = with_port.to_socket_addrs().map_err(|error| format!("{host}: {error}"))?.collect::<Vec<_>>();
        // Where a name has several addresses, one that is here is taken.
        let here = found.iter().find(|address| address.ip().to_canonical().is_loopback());
        let Some(&address) = here.or(found.first()) else { return Err(format!("{host} has no address")) };
        if !owned && !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{host} ({}) is not this machine: a storm is an attack on anyone who did not ask for it. If the server is yours, say --i-own-this-target",
                address.ip()
            ));
        }
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        let fields = fields.iter().fold(String::new(), |mut lines, (name, value)| {
            lines += &format!("{name}: {value}\r\n");
            lines
        });
        Ok(Self { url: url.to_owned(), address, host: host.to_owned(), path, fields })
    }

    /// A POST of this body.
    pub(crate) fn post(&self, of: Of<'_>, body: &str) -> Vec<u8> {
        let mut head = self.head("POST", of, "application/json, text/event-stream");
        // Writing to a string cannot fail.
        let _ = write!(head, "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        head.into_bytes()
    }

    /// A GET of the stream.
    pub(crate) fn get(&self, of: Of<'_>) -> Vec<u8> {
        (self.head("GET", of, "text/event-stream") + "\r\n").into_bytes()
    }

    /// The end of a session.
    pub(crate) fn delete(&self, of: Of<'_>) -> Vec<u8> {
        (self.head("DELETE", of, "application/json") + "\r\n").into_bytes()
    }

    fn head(&self, method: &str, of: Of<'_>, accept: &str) -> String {
        let Self { host, path, fields, .. } = self;
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nUser-Agent: rejoin-storm\r\n{fields}");
        let mut field = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                head += &format!("{name}: {value}\r\n");
            }
        };
        field("Mcp-Session-Id", of.session);
        field("MCP-Protocol-Version", of.revision);
        field("Last-Event-ID", of.cursor);
        head
    }
}

/// Reads a field that is to be sent: `Name: value`, and nothing that could end its line.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once(':') else { return Err("a field is Name: value".into()) };
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte)) {
        return Err(format!("{name:?} is no field's name"));
    }
    if value.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("a field's value has no control characters".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_elsewhere_is_refused_unless_it_is_ones_own() {
        let error = Target::new("http://192.0.2.7:80/mcp", &[], false).expect_err("refused");
        assert!(error.contains("--i-own-this-target") && error.contains("192.0.2.7"), "{error}");
        assert!(Target::new("http://192.0.2.7:80/mcp", &[], true).is_ok());
        for here in ["http://127.0.0.1:1/mcp", "http://127.9.9.9/mcp", "http://[::1]:8/mcp", "http://[::ffff:127.0.0.1]:8/"] {
            assert!(Target::new(here, &[], false).is_ok(), "{here}");
        }
    }

    #[test]
    fn what_is_no_http_url_is_refused() {
        for wrong in [
            "https://127.0.0.1/mcp",
            "127.0.0.1:80",
            "http://",
            "http://u:p@127.0.0.1/",
            "http://127.0.0.1/a b",
            "http://127.0.0.1:x/",
        ] {
            assert!(Target::new(wrong, &[], false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_carry_the_session_the_cursor_and_the_users_fields() {
        let fields = [("Authorization".to_owned(), "Bearer t".to_owned())];
        let target = Target::new("http://127.0.0.1:8931/mcp", &fields, false).expect("a target");
        let of = Of { session: Some("s"), revision: Some("2025-11-25"), cursor: Some("c") };
        let get = String::from_utf8(target.get(of)).expect("ASCII");
        for line in
            ["GET /mcp HTTP/1.1", "Host: 127.0.0.1:8931", "Authorization: Bearer t", "Mcp-Session-Id: s", "Last-Event-ID: c"]
        {
            assert!(get.split("\r\n").any(|found| found == line), "no {line} in {get}");
        }
        assert!(get.ends_with("\r\n\r\n"));
        let post = String::from_utf8(target.post(Of::default(), "{}")).expect("ASCII");
        assert!(
            post.contains("\r\nContent-Length: 2\r\n") && post.ends_with("\r\n\r\n{}") && !post.contains("Mcp-Session"),
            "{post}"
        );
    }

    #[test]
    fn a_field_that_would_end_its_line_is_refused() {
        assert_eq!(field("X-A:  b "), Ok(("X-A".into(), "b".into())));
        for wrong in ["no colon", ": x", "a b: c", "a: b\r\nc: d", "a: \0"] {
            assert!(field(wrong).is_err(), "{wrong:?}");
        }
    }
}
