//! Hosts and ports as `Host`, `Origin` and targets spell them.
//!
//! One grammar for all three, strict: what two readers could take for different hosts is none. Never says which are allowed (`names`).

use std::net::{IpAddr, Ipv6Addr};

/// A host as the wire spells it.
#[derive(Clone, Copy)]
pub(super) enum NameRef<'a> {
    Address(IpAddr),
    /// Without the dot that may end it.
    Text(&'a str),
}

/// A host that was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Address(IpAddr),
    Text(Box<str>),
}

impl Name {
    pub(super) fn is(&self, other: &NameRef<'_>) -> bool {
        match (self, other) {
            (Self::Address(ours), NameRef::Address(theirs)) => ours == theirs,
            (Self::Text(ours), NameRef::Text(theirs)) => ours.eq_ignore_ascii_case(theirs),
            _ => false,
        }
    }
}

/// `uri-host [ ":" port ]` (RFC 9110, section 7.2).
pub(super) struct AuthorityRef<'a> {
    pub(super) name: NameRef<'a>,
    pub(super) port: Option<u16>,
}

/// A host and perhaps a port that were configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) name: Name,
    pub(super) port: Option<u16>,
}

impl<'a> AuthorityRef<'a> {
    /// `None` for anything else: an empty host, user information, a port out of range, an address with a zone.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            return Some(Self { name: NameRef::Address(IpAddr::V6(address).to_canonical()), port: port_of(port)? });
        }
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let port = port_of(port)?;
        // `a.` is `a`, spelled from the root of names.
        let host = host.strip_suffix('.').unwrap_or(host);
        let name = match host.parse() {
            Ok(address) => NameRef::Address(IpAddr::V4(address)),
            Err(_) if is_registered_name(host) => NameRef::Text(host),
            Err(_) => return None,
        };
        Some(Self { name, port })
    }

    pub(super) fn to_owned(&self) -> Authority {
        let name = match self.name {
            NameRef::Address(address) => Name::Address(address),
            NameRef::Text(text) => Name::Text(text.into()),
        };
        Authority { name, port: self.port }
    }
}

impl Authority {
    /// Whether this entry allows that host. An entry without a port allows all. A host without one means its scheme's, and which scheme a
    /// proxy in front spoke is not known here.
    pub(super) fn admits(&self, other: &AuthorityRef<'_>) -> bool {
        let port = match (self.port, other.port) {
            (None, _) => true,
            (Some(ours), None) => matches!(ours, 80 | 443),
            (Some(ours), Some(theirs)) => ours == theirs,
        };
        port && self.name.is(&other.name)
    }
}

/// Nothing, or a colon and a port, which may be empty (RFC 3986, section 3.2.3). The outer `None`: neither.
fn port_of(text: &str) -> Option<Option<u16>> {
    match text.strip_prefix(':') {
        None => text.is_empty().then_some(None),
        Some("") => Some(None),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok().map(Some),
        Some(_) => None,
    }
}

/// RFC 3986, section 3.2.2: `reg-name`, and not empty (RFC 9110, section 4.2.1).
fn is_registered_name(host: &str) -> bool {
    let mut bytes = host.bytes();
    while let Some(byte) = bytes.next() {
        let fine = match byte {
            b'%' => [bytes.next(), bytes.next()].iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit())),
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true,
            _ => byte.is_ascii_alphanumeric(),
        };
        if !fine {
            return false;
        }
    }
    !host.is_empty()
}
