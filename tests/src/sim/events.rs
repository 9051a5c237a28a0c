//! The oracle's own reader of event streams (WHATWG HTML, section 9.2), one block at a time.
//!
//! Never keeps what a block means for the next one: last id and retry are the client's to remember.

/// A block: what stands between two empty lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// `event:`.
    pub(crate) event: Option<String>,
    /// `id:`.
    pub(crate) id: Option<String>,
    /// `data:`, its lines joined by LF; `None` without a data line.
    pub(crate) data: Option<String>,
    /// `retry:`.
    pub(crate) retry: Option<u64>,
    /// A comment stood in it.
    pub(crate) comment: bool,
}

/// Reads one stream.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    block: Block,
    after_cr: bool,
}

impl Reader {
    /// The next block; takes its bytes off the front of `input`.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Block>, String> {
        while let Some(at) = input.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            let (front, end) = (&input[..at], input[at]);
            let second_half = std::mem::replace(&mut self.after_cr, end == b'\r') && at == 0 && end == b'\n';
            self.line.extend_from_slice(front);
            *input = &input[at + 1..];
            if second_half {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if line.is_empty() {
                return Ok(Some(std::mem::take(&mut self.block)));
            }
            self.field(&line)?;
        }
        if !input.is_empty() {
            self.after_cr = false;
        }
        self.line.extend_from_slice(input);
        *input = &[];
        Ok(None)
    }

    /// Whether it stands between two blocks.
    pub(crate) fn between(&self) -> bool {
        self.line.is_empty() && self.block == Block::default()
    }

    fn field(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "an event that is not UTF-8")?;
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" => self.block.comment = true,
            "event" => self.block.event = Some(value.to_owned()),
            "id" if value.contains('\0') => return Err("an id with NUL".into()),
            "id" => self.block.id = Some(value.to_owned()),
            "data" => match &mut self.block.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "retry" => self.block.retry = Some(value.parse().map_err(|_| format!("retry {value:?}"))?),
            other => return Err(format!("field {other:?} in an event stream")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_read_the_same_in_any_pieces() {
        let text = ": hello\n\nretry: 5\nid: 1.0.3.x\ndata: a\r\ndata:b\r\rdata\n\nevent: resync\ndata: {}\n\n";
        let mut whole = Vec::new();
        for grain in [1, 2, 5, 1000] {
            let (mut reader, mut blocks) = (Reader::default(), Vec::new());
            for piece in text.as_bytes().chunks(grain) {
                let mut input = piece;
                while let Some(block) = reader.next(&mut input).unwrap() {
                    blocks.push(block);
                }
            }
            assert!(reader.between());
            assert_eq!(blocks.len(), 4);
            assert_eq!(blocks[1].data.as_deref(), Some("a\nb"));
            assert_eq!((blocks[1].retry, blocks[1].id.as_deref()), (Some(5), Some("1.0.3.x")));
            assert_eq!((blocks[2].data.as_deref(), blocks[3].event.as_deref()), (Some(""), Some("resync")));
            if grain == 1 {
                whole = blocks;
            } else {
                assert_eq!(whole, blocks);
            }
        }
    }
}
