//! Text as a terminal or a page may show it.
//!
//! Never sends a character that steers what shows it.

/// The text with every control character but line ends shown instead of sent: a server must not steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() || is_invisible(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that change how others are shown: directions of writing, and a byte order mark.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The same on one line.
pub(crate) fn on_a_line(text: &str) -> String {
    printable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_instead_of_sent() {
        assert_eq!(printable("a\x1b[2J\r\n\tb\u{202e}\u{9b}é"), "a\\u{1b}[2J\\r\n\tb\\u{202e}\\u{9b}é");
        assert_eq!(on_a_line(" a\n\nb\t c "), "a b c");
    }
}
