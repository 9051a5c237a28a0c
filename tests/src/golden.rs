//! Golden transcripts: conversations as files, bytes in and bytes out, run against a server and compared.
//!
//! A file is a script and its expectation in one. Its lines, by their first characters:
//!
//! | line | means |
//! |---|---|
//! | `# …`, empty | for the reader |
//! | `$ rejoin serve …` | the server's options; the first line that acts |
//! | `= connect NAME` | opens a connection, which the lines below are about |
//! | `= on NAME` | goes back to a connection |
//! | `= wait MILLISECONDS` | lets time pass |
//! | `> …` | bytes sent |
//! | `= answer` | reads a whole answer |
//! | `= events COUNT` | reads up to the end of that many events more (the head too, where it is due) |
//! | `= end` | reads to the stream's clean end |
//! | `< …` | bytes received by the line above it |
//!
//! A byte line stands for its text and a line feed; a carriage return before it is written `\r`, and a line that ends with `\` has no
//! line feed. What differs from run to run has a name in braces: `{host}`, `{session 1}`, `{cursor 1.2.3}` (its tag left out; a
//! dash follows for another session's), `{retry}`, `{length}` (of a body sent). Chunks are joined, since where they are cut is a matter of
//! time: `{chunk}` is their one line.
//!
//! `UPDATE_GOLDEN=1` rewrites what was received and **fails** if that changed anything, so that somebody reads the difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::http::{Direction, Piece, Reader};
use crate::matrix::Flavour;
use crate::server::Rejoin;
use crate::wire::{Connection, Stream};

/// Runs a transcript file, and panics where what came differs from what it says.
pub fn run(path: &Path, flavour: Flavour) {
    let script = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let came = Player::play(&script, flavour);
    if came == script {
        return;
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &came).expect("a transcript can be written");
        panic!("{} was rewritten: read the difference before it is committed", path.display());
    }
    let at = came.lines().zip(script.lines()).take_while(|(came, said)| came == said).count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("(nothing)").to_owned();
    panic!("{}:{}\n  says {}\n  came {}\n--- all that came\n{came}---", path.display(), at + 1, line(&script), line(&came));
}

/// A connection under its name.
enum Line {
    /// Between two answers.
    Idle(Connection),
    /// In an event stream; how much of what was received is shown already.
    Streaming(Box<Stream>, usize),
}

/// Plays one script.
struct Player {
    server: Rejoin,
    names: Names,
    lines: BTreeMap<String, Line>,
    current: String,
    /// The script as it should be: the same, with what really came.
    out: String,
    /// Bytes gathered from `>` lines.
    sending: String,
}

impl Player {
    fn play(script: &str, flavour: Flavour) -> String {
        let start = script.lines().find_map(|line| line.strip_prefix("$ rejoin serve")).expect("a transcript starts a server");
        let options: Vec<&str> = start.split_whitespace().collect();
        let server = Rejoin::start(flavour, &options);
        let names = Names::new(server.address);
        let mut player =
            Self { server, names, lines: BTreeMap::new(), current: String::new(), out: String::new(), sending: String::new() };
        for line in script.lines() {
            if line.starts_with('<') {
                continue;
            }
            player.out.push_str(line);
            player.out.push('\n');
            if let Some(bytes) = line.strip_prefix("> ") {
                player.sending.push_str(&unescaped(bytes));
            } else if let Some(order) = line.strip_prefix("= ") {
                player.flush();
                player.obey(order);
            }
        }
        player.out
    }

    /// Sends what the `>` lines said.
    fn flush(&mut self) {
        if self.sending.is_empty() {
            return;
        }
        let text = self.names.filled_in(&std::mem::take(&mut self.sending));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let text = format!("{}\r\n\r\n{body}", head.replace("{length}", &body.len().to_string()));
        match self.lines.get_mut(&self.current) {
            Some(Line::Idle(connection)) => connection.write(text.as_bytes()),
            Some(Line::Streaming(stream, _)) => stream.connection().write(text.as_bytes()),
            None => panic!("no connection {:?}", self.current),
        }
    }

    fn obey(&mut self, order: &str) {
        match order.split_once(' ').unwrap_or((order, "")) {
            ("connect", name) => {
                self.lines.insert(name.to_owned(), Line::Idle(Connection::open(self.server.address)));
                name.clone_into(&mut self.current);
            }
            ("on", name) => name.clone_into(&mut self.current),
            ("wait", millis) => thread::sleep(Duration::from_millis(millis.parse().expect("milliseconds"))),
            ("answer", _) => self.answer(),
            ("events", count) => self.events(Some(count.parse().expect("a count"))),
            ("end", _) => self.events(None),
            _ => panic!("an unknown order: {order}"),
        }
    }

    fn answer(&mut self) {
        let Some(Line::Idle(connection)) = self.lines.get_mut(&self.current) else { panic!("{:?} is in a stream", self.current) };
        let before = connection.received().len();
        connection.answer();
        let bytes = connection.received()[before..].to_vec();
        self.show(&joined(&bytes));
    }

    /// Reads events, all of them where no count is given.
    fn events(&mut self, count: Option<usize>) {
        let (mut stream, shown) = match self.lines.remove(&self.current) {
            Some(Line::Idle(connection)) => {
                let before = connection.received().len();
                (Box::new(connection.stream()), before)
            }
            Some(Line::Streaming(stream, shown)) => (stream, shown),
            None => panic!("no connection {:?}", self.current),
        };
        match count {
            Some(count) => drop(stream.take(count)),
            None => drop(stream.rest()),
        }
        let all = stream.connection().received().to_vec();
        let text = joined(&all);
        // What was shown before is a prefix of the joined text as well, since joining only ever takes framing away at its end.
        let before = joined_length(&all[..shown]);
        self.show(&text[before..]);
        let line = match count {
            Some(_) => Line::Streaming(stream, all.len()),
            None => Line::Idle(stream.into_connection()),
        };
        self.lines.insert(self.current.clone(), line);
    }

    /// Writes what came as `<` lines.
    fn show(&mut self, text: &str) {
        let text = self.names.taken_out(text);
        for line in text.split_inclusive('\n') {
            let shown = match (line.strip_suffix("\r\n"), line.strip_suffix('\n')) {
                (Some(line), _) => format!("{line}\\r"),
                (None, Some(line)) => line.to_owned(),
                (None, None) => format!("{line}\\"),
            };
            let space = if shown.is_empty() { "" } else { " " };
            writeln!(self.out, "<{space}{shown}").expect("a string takes text");
        }
    }
}

/// The bytes that the text of a `>` line stands for.
fn unescaped(line: &str) -> String {
    match (line.strip_suffix("\\r"), line.strip_suffix('\\')) {
        (Some(line), _) => format!("{line}\r\n"),
        (None, Some(line)) => line.to_owned(),
        (None, None) => format!("{line}\n"),
    }
}

/// Received bytes as text, the chunks of each body joined under one `{chunk}` line.
fn joined(bytes: &[u8]) -> String {
    let mut reader = Reader::new(Direction::Responses);
    let mut text = Vec::new();
    let mut chunked = false;
    let mut in_head = true;
    for &byte in bytes {
        let was_in_head = in_head;
        match reader.push(byte) {
            Some(Piece::Head(head)) => {
                text.push(byte);
                chunked = head.field("Transfer-Encoding").is_some();
                in_head = reader.whole();
                if chunked {
                    text.extend_from_slice(b"{chunk}\r\n");
                }
                continue;
            }
            Some(Piece::Body(byte)) => text.push(byte),
            None if was_in_head => text.push(byte),
            None => {}
        }
        if !was_in_head && reader.whole() {
            if chunked {
                text.extend_from_slice(b"\r\n0\r\n\r\n");
            }
            in_head = true;
        }
    }
    String::from_utf8(text).expect("answers are UTF-8")
}

fn joined_length(bytes: &[u8]) -> usize {
    joined(bytes).len()
}

/// What differs from run to run, by name.
struct Names {
    host: String,
    sessions: Vec<String>,
    /// Cursors by their names, which leave the tag out.
    cursors: BTreeMap<String, String>,
}

impl Names {
    fn new(address: SocketAddr) -> Self {
        Self { host: address.to_string(), sessions: Vec::new(), cursors: BTreeMap::new() }
    }

    /// Text to send, with the values of this run.
    fn filled_in(&self, text: &str) -> String {
        let mut text = text.replace("{host}", &self.host);
        for (at, session) in self.sessions.iter().enumerate() {
            text = text.replace(&format!("{{session {}}}", at + 1), session);
        }
        for (name, cursor) in &self.cursors {
            text = text.replace(&format!("{{cursor {name}}}"), cursor);
        }
        for name in ["{session ", "{cursor "] {
            assert!(!text.contains(name), "a name without a value so far: {text}");
        }
        text
    }

    /// Received text, with names for the values of this run.
    fn taken_out(&mut self, text: &str) -> String {
        let mut out = String::new();
        for line in text.split_inclusive('\n') {
            out.push_str(&self.line_taken_out(line));
        }
        out.replace(&self.host, "{host}")
    }

    fn line_taken_out(&mut self, line: &str) -> String {
        let (content, end) = line.split_at(line.trim_end_matches(['\r', '\n']).len());
        if let Some((name, value)) = content.split_once(": ") {
            if name.eq_ignore_ascii_case("mcp-session-id") {
                let at = self.sessions.iter().position(|session| session == value).unwrap_or(self.sessions.len());
                if at == self.sessions.len() {
                    self.sessions.push(value.to_owned());
                }
                return format!("{name}: {{session {}}}{end}", at + 1);
            }
            if name == "retry" {
                assert!(value.bytes().all(|digit| digit.is_ascii_digit()), "{line:?}");
                return format!("retry: {{retry}}{end}");
            }
        }
        format!("{}{end}", self.cursors_taken_out(content))
    }

    /// Replaces every run of characters that reads as a cursor.
    fn cursors_taken_out(&mut self, text: &str) -> String {
        let of_cursor = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c) || c == '.';
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(of_cursor) {
            let length = rest[start..].find(|c| !of_cursor(c)).unwrap_or(rest.len() - start);
            let word = &rest[start..start + length];
            out.push_str(&rest[..start]);
            match word.rsplit_once('.').filter(|(place, tag)| tag.len() == 16 && place.split('.').count() == 3) {
                Some((place, _)) => write!(out, "{{cursor {}}}", self.name_of(place, word)).expect("a string takes text"),
                None => out.push_str(word),
            }
            rest = &rest[start + length..];
        }
        out + rest
    }

    fn name_of(&mut self, place: &str, cursor: &str) -> String {
        let mut name = place.to_owned();
        while self.cursors.get(&name).is_some_and(|known| known != cursor) {
            name.push('-');
        }
        self.cursors.entry(name.clone()).or_insert_with(|| cursor.to_owned());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_values_both_ways() {
        let mut names = Names::new("127.0.0.1:9".parse().expect("an address"));
        let came = "Mcp-Session-Id: abc\r\n\r\nid: 1.2.3.0123456789abcdef\nretry: 2999\ndata: {\"earliest\":\"1.2.4.0123456789abcdef\"}\n";
        let shown = names.taken_out(came);
        assert_eq!(
            shown,
            "Mcp-Session-Id: {session 1}\r\n\r\nid: {cursor 1.2.3}\nretry: {retry}\ndata: {\"earliest\":\"{cursor 1.2.4}\"}\n"
        );
        assert_eq!(names.filled_in("{session 1} {cursor 1.2.3} {host}"), "abc 1.2.3.0123456789abcdef 127.0.0.1:9");
        assert_eq!(names.taken_out("1.2.3.fedcba9876543210"), "{cursor 1.2.3-}");
    }

    #[test]
    fn chunks_are_joined_into_one() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let bytes = format!("{head}1\r\na\r\n2\r\nb\n\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(joined(bytes.as_bytes()), format!("{head}{{chunk}}\r\nab\n\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"));
    }
}
