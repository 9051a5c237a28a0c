//! Which names this server answers to (`Host`) and which pages may call it (`Origin`): rows 0 and 1 of the boundary.
//!
//! A page that a browser loaded from elsewhere can point its own name at a loopback address (DNS rebinding); its requests then arrive
//! here, but they carry that name. Never resolves a name, and never says who a caller is.

use std::fmt;
use std::net::IpAddr;

use super::authority::{Authority, AuthorityRef, Name, NameRef};
use super::head::{Head, Version};
use crate::refusal::Refusal;

/// The names and origins that are allowed: loopback names and the bound address on any port, and what was configured.
#[derive(Clone, Debug, Default)]
pub struct Names {
    bound: Option<Name>,
    any_host: bool,
    hosts: Vec<Authority>,
    any_origin: bool,
    null_origin: bool,
    origins: Vec<AllowedOrigin>,
}

/// A configured name that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName {
    /// The entry.
    pub entry: String,
    /// What it should have been.
    pub expected: &'static str,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.entry, self.expected)
    }
}

impl std::error::Error for BadName {}

impl Names {
    /// `bound`: the address or name that the server listens on; its port, if it has one, does not count.
    ///
    /// `allow_hosts`: `name` or `address` on any port, `name:port`, or `*` for any. `allow_origins`: `scheme://name[:port]`, `null`, or `*`.
    /// To allow a host is not to allow pages from it.
    pub fn new(bound: Option<&str>, allow_hosts: &[String], allow_origins: &[String]) -> Result<Self, BadName> {
        let bad = |entry: &str, expected| BadName { entry: entry.to_owned(), expected };
        let host_of = |entry: &str| match entry.parse::<IpAddr>() {
            // An IPv6 address without its brackets cannot be meant otherwise.
            Ok(address) => Some(Authority { name: Name::Address(address.to_canonical()), port: None }),
            Err(_) => AuthorityRef::parse(entry.as_bytes()).map(|authority| authority.to_owned()),
        };
        let mut names = Self::default();
        if let Some(entry) = bound {
            let authority = host_of(entry).ok_or_else(|| bad(entry, "an address or a name"))?;
            names.bound = Some(authority.name);
        }
        for entry in allow_hosts {
            match entry.as_str() {
                "*" => names.any_host = true,
                text => names.hosts.push(host_of(text).ok_or_else(|| bad(text, "a host, host:port or *"))?),
            }
        }
        for entry in allow_origins {
            match entry.as_str() {
                "*" => names.any_origin = true,
                "null" => names.null_origin = true,
                text => {
                    let origin = Origin::parse(text).ok_or_else(|| bad(text, "scheme://host, scheme://host:port, null or *"))?;
                    names.origins.push(origin.to_owned());
                }
            }
        }
        Ok(names)
    }

    /// Rows 0 and 1: `Host` once (HTTP/1.0 may leave it out), well formed and allowed, `Origin` at most once and allowed.
    pub fn check(&self, head: &Head) -> Result<(), Refusal> {
        match head.single("host") {
            Err(_) => return Err(Refusal::BadRequest("Several Host fields")),
            Ok(None) if head.version() == Version::Http11 => return Err(Refusal::BadRequest("No Host field")),
            Ok(None) => {}
            Ok(Some(host)) => self.check_host(host)?,
        }
        // RFC 9112, section 3.2.2: with an absolute-form target an origin server "MUST ignore the received Host header field (if any) and
        // instead use the host information of the request-target". A proxy may have gone by either, so both must be allowed.
        if let Some(authority) = head.authority() {
            self.check_host(authority.as_bytes())?;
        }
        match head.single("origin") {
            Err(_) => Err(Refusal::BadRequest("Several Origin fields")),
            Ok(Some(origin)) if !self.allows_origin(origin) => Err(Refusal::Forbidden("Origin not allowed")),
            Ok(_) => Ok(()),
        }
    }

    /// The page's origin, for CORS: present once, of visible ASCII. Says nothing of whether it is allowed; that is `check`.
    pub fn origin_of<'h>(&self, head: &'h Head) -> Option<&'h str> {
        let origin = head.single("origin").ok().flatten()?;
        let visible = !origin.is_empty() && origin.iter().all(u8::is_ascii_graphic);
        visible.then(|| std::str::from_utf8(origin).ok()).flatten()
    }

    fn check_host(&self, host: &[u8]) -> Result<(), Refusal> {
        let authority = AuthorityRef::parse(host).ok_or(Refusal::BadRequest("Malformed host"))?;
        let allowed = self.any_host || self.is_ours(&authority.name) || self.hosts.iter().any(|host| host.admits(&authority));
        if allowed { Ok(()) } else { Err(Refusal::Forbidden("Host not allowed")) }
    }

    fn allows_origin(&self, origin: &[u8]) -> bool {
        if self.any_origin {
            return true;
        }
        let Ok(text) = std::str::from_utf8(origin) else { return false };
        if text.eq_ignore_ascii_case("null") {
            return self.null_origin;
        }
        let Some(origin) = Origin::parse(text) else { return false };
        self.origins.iter().any(|allowed| allowed.admits(&origin)) || (origin.is_web() && self.is_ours(&origin.authority.name))
    }

    /// A loopback name, or what the server is bound to.
    fn is_ours(&self, name: &NameRef<'_>) -> bool {
        let loopback = match name {
            NameRef::Address(address) => address.is_loopback(),
            NameRef::Text(text) => text.eq_ignore_ascii_case("localhost"),
        };
        loopback || self.bound.as_ref().is_some_and(|bound| bound.is(name))
    }
}

/// `scheme "://" host [ ":" port ]` (RFC 6454, section 6.2).
struct Origin<'a> {
    scheme: &'a str,
    authority: AuthorityRef<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowedOrigin {
    scheme: Box<str>,
    authority: Authority,
}

impl<'a> Origin<'a> {
    /// With the scheme's own port filled in.
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let begins = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
        if !begins || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')) {
            return None;
        }
        let mut authority = AuthorityRef::parse(authority.as_bytes())?;
        authority.port = authority.port.or_else(|| own_port(scheme));
        Some(Self { scheme, authority })
    }

    /// A page of a web server, as opposed to an extension's or an application's.
    fn is_web(&self) -> bool {
        own_port(self.scheme).is_some()
    }

    fn to_owned(&self) -> AllowedOrigin {
        AllowedOrigin { scheme: self.scheme.into(), authority: self.authority.to_owned() }
    }
}

impl AllowedOrigin {
    fn admits(&self, origin: &Origin<'_>) -> bool {
        self.scheme.eq_ignore_ascii_case(origin.scheme)
            && self.authority.port == origin.authority.port
            && self.authority.name.is(&origin.authority.name)
    }
}

fn own_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::parse_head;
    use crate::limits::Limits;

    fn status(names: &Names, head: &str) -> u16 {
        let (head, _) = parse_head(head.as_bytes(), &Limits::default()).expect("valid").expect("whole");
        names.check(&head).map_or_else(|refusal| refusal.shape().status, |()| 200)
    }

    fn host(names: &Names, host: &str) -> u16 {
        status(names, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    fn origin(names: &Names, origin: &str) -> u16 {
        status(names, &format!("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n\r\n"))
    }

    fn names(bound: &str, hosts: &[&str], origins: &[&str]) -> Names {
        let owned = |list: &[&str]| list.iter().map(|&entry| entry.to_owned()).collect::<Vec<_>>();
        Names::new(Some(bound), &owned(hosts), &owned(origins)).expect("valid entries")
    }

    #[test]
    fn loopback_names_are_allowed_on_any_port() {
        for name in
            ["localhost", "LocalHost:1", "localhost.", "localhost:", "127.0.0.1:65535", "127.255.0.9", "[::1]", "[::1]:80"]
        {
            assert_eq!(host(&Names::default(), name), 200, "{name}");
        }
        for page in ["http://localhost", "HTTPS://LOCALHOST:1", "http://127.0.0.1:9", "https://[::1]:5173"] {
            assert_eq!(origin(&Names::default(), page), 200, "{page}");
        }
    }

    #[test]
    fn other_names_are_forbidden() {
        for name in [
            "evil.example.com",
            "localhost.evil.com",
            "127.0.0.1.evil.com",
            "evil-localhost",
            "foo.localhost",
            "127.1",
            "0177.0.0.1",
            "2130706433",
            "128.0.0.1",
            "0.0.0.0",
            "[::]",
            "[::2]",
            "%6cocalhost",
            "localhost..",
            "evil.com:127",
        ] {
            assert_eq!(host(&Names::default(), name), 403, "{name}");
        }
        for page in [
            "http://evil.example.com",
            "http://localhost.evil.com",
            "null",
            "NULL",
            "",
            "localhost",
            "//localhost",
            "http://",
            "http://localhost/",
            "http://localhost evil",
            "http://localhost, http://evil.com",
            "http://evil.com@localhost",
            "http://localhost@evil.com",
            "http://localhost:99999",
            "chrome-extension://localhost",
            "file://",
            "1http://localhost",
            "http://l\u{f6}calhost",
        ] {
            assert_eq!(origin(&Names::default(), page), 403, "{page}");
        }
    }

    #[test]
    fn a_host_that_is_no_host_is_a_bad_request_even_where_any_is_allowed() {
        let any = names("localhost", &["*"], &[]);
        for name in [
            "",
            ":80",
            ".",
            "user@localhost",
            "user:pass@localhost",
            "@localhost",
            "localhost:x",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "localhost, evil.com",
            "localhost evil.com",
            "localhost\tevil.com",
            "http://localhost",
            "localhost/",
            "localhost#",
            "localhost?",
            "local\\host",
            "localhost%",
            "localhost%2",
            "localhost%zz",
            "[::1",
            "[::1]x",
            "[::1]80",
            "::1",
            "[::1%25lo]",
            "[v1.a]",
            "[127.0.0.1]",
            "l\u{f6}calhost",
        ] {
            for names in [&Names::default(), &any] {
                assert_eq!(host(names, name), 400, "{name}");
            }
        }
    }

    #[test]
    fn host_stands_alone_and_only_old_clients_leave_it_out() {
        let status = |head: &str| status(&Names::default(), head);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), 200);
        assert_eq!(status("GET / HTTP/1.0\r\nHost: evil.com\r\n\r\n"), 403);
        for version in ["1.0", "1.1"] {
            assert_eq!(status(&format!("GET / HTTP/{version}\r\nHost: localhost\r\nhOST: localhost\r\n\r\n")), 400);
        }
    }

    #[test]
    fn an_absolute_target_must_be_allowed_as_well_as_its_host() {
        let status = |target, host| status(&Names::default(), &format!("GET {target} HTTP/1.1\r\n{host}\r\n"));
        assert_eq!(status("http://localhost:1/mcp", "Host: localhost:1\r\n"), 200);
        assert_eq!(status("http://evil.com/mcp", "Host: localhost\r\n"), 403);
        assert_eq!(status("http://localhost/mcp", "Host: evil.com\r\n"), 403);
        assert_eq!(status("http://localhost/mcp", ""), 400);
        assert_eq!(status("http://evil@localhost/mcp", "Host: localhost\r\n"), 400);
    }

    #[test]
    fn the_bound_address_is_allowed_on_any_port() {
        let bound = names("192.0.2.7:8080", &[], &[]);
        assert_eq!((host(&bound, "192.0.2.7"), host(&bound, "192.0.2.7:1"), host(&bound, "192.0.2.8")), (200, 200, 403));
        assert_eq!((origin(&bound, "http://192.0.2.7:3"), origin(&bound, "http://192.0.2.8")), (200, 403));
        assert_eq!(host(&names("[2001:db8::1]:80", &[], &[]), "[2001:DB8:0::1]"), 200);
        assert_eq!(host(&names("2001:db8::1", &[], &[]), "[2001:db8::1]"), 200);
        assert_eq!(host(&names("mcp.internal:80", &[], &[]), "MCP.internal."), 200);
        assert_eq!(host(&names("0.0.0.0:80", &[], &[]), "192.0.2.7"), 403);
    }

    #[test]
    fn configured_hosts_are_allowed_as_they_are_written() {
        let named = names("localhost", &["Example.com", "a.example:8443", "b.example:443", "192.0.2.1"], &[]);
        for (name, expected) in [
            ("example.COM:77", 200),
            ("www.example.com", 403),
            ("a.example:8443", 200),
            ("a.example", 403),
            ("a.example:80", 403),
            ("b.example", 200),
            ("192.0.2.1:5", 200),
        ] {
            assert_eq!(host(&named, name), expected, "{name}");
        }
        assert_eq!(origin(&named, "http://example.com"), 403, "a host's pages are not allowed with it");
        assert_eq!(host(&names("localhost", &["*"], &[]), "anything.example"), 200);
    }

    #[test]
    fn configured_origins_are_allowed_as_they_are_written() {
        let named = names("localhost", &[], &["https://App.example", "http://b.example:8080", "vscode-webview://abc", "null"]);
        for (page, expected) in [
            ("https://app.example", 200),
            ("HTTPS://app.example:443", 200),
            ("http://app.example", 403),
            ("https://app.example:444", 403),
            ("http://b.example:8080", 200),
            ("http://b.example", 403),
            ("vscode-webview://abc", 200),
            ("vscode-webview://abd", 403),
            ("null", 200),
        ] {
            assert_eq!(origin(&named, page), expected, "{page}");
        }
        let any = names("localhost", &[], &["*"]);
        for page in ["https://evil.example", "null", "file://"] {
            assert_eq!(origin(&any, page), 200, "{page}");
        }
    }

    #[test]
    fn several_origins_are_a_bad_request_even_where_any_is_allowed() {
        let head = "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n\r\n";
        assert_eq!(status(&names("localhost", &[], &["*"]), head), 400);
    }

    #[test]
    fn an_entry_that_is_no_name_is_told() {
        let refused = |hosts: &[&str], origins: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|&entry| entry.to_owned()).collect::<Vec<_>>();
            Names::new(None, &owned(hosts), &owned(origins)).expect_err("not a name").to_string()
        };
        assert_eq!(refused(&["http://a"], &[]), "\"http://a\" is not a host, host:port or *");
        assert!(refused(&[], &["a.example"]).starts_with("\"a.example\" is not scheme://host"));
        assert!(refused(&[], &["https://a.example/"]).starts_with("\"https://a.example/\" is not"));
        assert!(Names::new(Some(""), &[], &[]).is_err());
    }

    #[test]
    fn the_origin_is_echoed_only_when_it_is_one_visible_word() {
        let origin = |fields: &str| {
            let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            let (head, _) = parse_head(text.as_bytes(), &Limits::default()).expect("valid").expect("whole");
            Names::default().origin_of(&head).map(str::to_owned)
        };
        assert_eq!(origin("Origin: http://a\r\n").as_deref(), Some("http://a"));
        for fields in ["", "Origin:\r\n", "Origin: a b\r\n", "Origin: a\r\nOrigin: a\r\n", "Origin: \u{f6}\r\n"] {
            assert_eq!(origin(fields), None, "{fields}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_taken_for_loopback_but_loopback(text in "[0-9a-z.:%@\\[\\]]{0,20}") {
            if host(&Names::default(), &text) == 200 {
                let name = text.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end_matches(':');
                let name = if name.ends_with([']', 't']) { name } else { text.split(':').next().unwrap_or_default() };
                let address = name.trim_end_matches('.').trim_matches(['[', ']']).parse::<IpAddr>();
                prop_assert!(name.trim_end_matches('.') == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback()));
            }
        }
    }
}
