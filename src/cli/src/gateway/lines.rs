//! Bytes of a pipe to lines of bounded length.
//!
//! Never keeps more than one line, and never knows what a line means.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Bytes that are kept of the end of a line that is too long.
const END: usize = 64;
/// Memory that is kept for the next line.
const KEPT: usize = 64 << 10;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// One longer than the limit: as much of it as the limit admits, and its last bytes.
    TooLong { start: &'a [u8], end: &'a [u8] },
}

/// Reads lines. What follows the last line end is a line as well.
pub(super) struct Lines<R> {
    inner: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    end: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `limit` bytes.
    pub(super) fn new(inner: R, limit: usize) -> Self {
        Self { inner: BufReader::new(inner), limit, line: Vec::new(), end: Vec::new() }
    }

    /// The next line; `None` at the end. A future that is dropped has lost the part of the line that it read.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        self.line.shrink_to(KEPT);
        self.end.clear();
        let mut too_long = false;
        loop {
            let chunk = self.inner.fill_buf().await?;
            if chunk.is_empty() {
                if self.line.is_empty() {
                    return Ok(None);
                }
                break;
            }
            let newline = chunk.iter().position(|&byte| byte == b'\n');
            let part = &chunk[..newline.unwrap_or(chunk.len())];
            // One byte more than the limit, for a carriage return.
            let (within, beyond) = part.split_at(part.len().min(self.limit + 1 - self.line.len()));
            self.line.extend_from_slice(within);
            if !beyond.is_empty() {
                too_long = true;
                self.end.extend_from_slice(&beyond[beyond.len().saturating_sub(END)..]);
                self.end.drain(..self.end.len().saturating_sub(END));
            }
            let used = part.len() + usize::from(newline.is_some());
            self.inner.consume(used);
            if newline.is_some() {
                break;
            }
        }
        Ok(Some(self.finish(too_long)))
    }

    fn finish(&mut self, too_long: bool) -> Line<'_> {
        if !too_long {
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
            if self.line.len() <= self.limit {
                return Line::Whole(&self.line);
            }
        }
        // The last bytes may have begun within the limit.
        let missing = END.saturating_sub(self.end.len()).min(self.line.len());
        self.end.splice(..0, self.line[self.line.len() - missing..].iter().copied());
        if self.end.last() == Some(&b'\r') {
            self.end.pop();
        }
        Line::TooLong { start: &self.line[..self.limit], end: &self.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(limit: usize, bytes: &[u8], chunk: usize) -> Vec<String> {
        let mut lines = Lines::new(bytes, limit);
        lines.inner = BufReader::with_capacity(chunk, bytes);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.expect("a slice can be read") {
            all.push(match line {
                Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                Line::TooLong { start, end } => {
                    format!("{}..{}", String::from_utf8_lossy(start), String::from_utf8_lossy(end))
                }
            });
        }
        all
    }

    #[tokio::test]
    async fn lines_are_the_same_in_any_fragmentation() {
        for chunk in 1..12 {
            let got = lines(4, b"a\n\nabcd\r\nabcd\nabcde\nabcdefgh\r\n\xff\nlast", chunk).await;
            assert_eq!(got, ["a", "", "abcd", "abcd", "abcd..abcde", "abcd..abcdefgh", "\u{fffd}", "last"], "{chunk}");
        }
    }

    #[tokio::test]
    async fn a_line_too_long_keeps_its_start_and_its_end_only() {
        for chunk in [1, 7, 8192] {
            let mut bytes = vec![b'x'; 100_000];
            bytes.extend_from_slice(b"the end\nnext\n");
            let got = lines(10, &bytes, chunk).await;
            assert_eq!(got.len(), 2);
            assert!(got[0].starts_with("xxxxxxxxxx..xx") && got[0].ends_with("the end"), "{}", got[0]);
            assert_eq!((got[0].len(), got[1].as_str()), (10 + 2 + END, "next"));
        }
    }
}
