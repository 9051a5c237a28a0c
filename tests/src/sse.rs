//! Server-sent events as the tests read them: blocks of lines, each kept whole, with the fields that it had.
//!
//! Stricter than the standard's parser: the server under test ends lines with LF only and knows four fields; anything else is a panic.

use std::time::Duration;

use serde_json::Value;

/// One block: the lines up to an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The block's text, its empty line excluded.
    pub text: String,
    /// The last `event:`.
    pub event: Option<String>,
    /// The last `id:`.
    pub id: Option<String>,
    /// The last `retry:`.
    pub retry: Option<Duration>,
    /// The `data:` lines, joined; `Some("")` for a single empty one.
    pub data: Option<String>,
}

impl Block {
    fn parse(text: &str) -> Self {
        let mut block = Self { text: text.to_owned(), ..Self::default() };
        for line in text.split('\n') {
            assert!(!line.contains(['\r', '\0']), "a control character in the line {line:?}");
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no colon in the line {line:?}"));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "" => {}
                "event" => block.event = Some(value.to_owned()),
                "id" => block.id = Some(value.to_owned()),
                "retry" => block.retry = Some(Duration::from_millis(value.parse().expect("retry is digits"))),
                "data" => match &mut block.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    none => *none = Some(value.to_owned()),
                },
                _ => panic!("an unknown field in the line {line:?}"),
            }
        }
        block
    }

    /// Whether it holds nothing but comments.
    pub fn is_comment(&self) -> bool {
        self.text.split('\n').all(|line| line.starts_with(':'))
    }

    /// Whether it is an opening event: an id and an empty `data:` line.
    pub fn is_opening(&self) -> bool {
        self.event.is_none() && self.id.is_some() && self.data.as_deref() == Some("")
    }

    /// Whether it is a `resync`.
    pub fn is_resync(&self) -> bool {
        self.event.as_deref() == Some("resync")
    }

    /// Whether a client hands it to its application: data that is not empty.
    pub fn is_message(&self) -> bool {
        self.event.as_deref().is_none_or(|event| event == "message") && self.data.as_ref().is_some_and(|data| !data.is_empty())
    }

    /// What it says, wherever on a stream it stands: its id and its data. (The first event of a stream may carry `retry` as well.)
    pub fn said(&self) -> (Option<&str>, Option<&str>) {
        (self.id.as_deref(), self.data.as_deref())
    }

    /// Its data as JSON.
    pub fn json(&self) -> Value {
        let data = self.data.as_deref().unwrap_or_else(|| panic!("no data in {:?}", self.text));
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error} in the data of {:?}", self.text))
    }

    /// Its id, which it must have.
    pub fn cursor(&self) -> &str {
        self.id.as_deref().unwrap_or_else(|| panic!("no id in {:?}", self.text))
    }
}

/// Cuts a body into blocks, byte by byte.
#[derive(Debug, Default)]
pub struct Blocks {
    text: Vec<u8>,
}

impl Blocks {
    /// Takes the next byte; gives the block that it ends.
    pub fn push(&mut self, byte: u8) -> Option<Block> {
        self.text.push(byte);
        if !self.text.ends_with(b"\n\n") {
            assert!(self.text != b"\n", "an empty line before any block");
            return None;
        }
        self.text.truncate(self.text.len() - 2);
        let text = String::from_utf8(std::mem::take(&mut self.text)).expect("events are UTF-8");
        Some(Block::parse(&text))
    }

    /// What came since the last whole block.
    pub fn rest(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<Block> {
        let mut blocks = Blocks::default();
        text.bytes().filter_map(|byte| blocks.push(byte)).collect()
    }

    #[test]
    fn fields_are_told_apart() {
        let all = blocks("id: 7\nretry: 200\ndata:\n\n:\n\nevent: resync\nid: 9\ndata: {\"a\":1}\n\ndata: x\ndata: y\n\n");
        assert!(all[0].is_opening() && all[0].retry == Some(Duration::from_millis(200)));
        assert!(all[1].is_comment());
        assert!(all[2].is_resync() && all[2].json()["a"] == 1 && all[2].cursor() == "9");
        assert_eq!(all[3].data.as_deref(), Some("x\ny"));
    }

    #[test]
    fn a_half_block_is_no_block() {
        assert!(blocks("id: 7\ndata: x\n").is_empty());
    }
}
