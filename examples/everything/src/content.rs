//! Content as MCP has it: texts, an image, a sound, resources inside messages.

use serde_json::{Value, json};

/// One red pixel, a PNG, in base64.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
/// A millisecond of silence, a WAV of 8 samples, in base64.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub(crate) fn audio() -> Value {
    json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
}

pub(crate) fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": text } })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn the_image_and_the_sound_are_what_they_say() {
        let png = BASE64_STANDARD.decode(PNG).expect("base64");
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82"));
        let wav = BASE64_STANDARD.decode(WAV).expect("base64");
        assert!(wav.starts_with(b"RIFF") && wav[8..].starts_with(b"WAVE"));
        assert_eq!(u32::from_le_bytes(wav[4..8].try_into().expect("four bytes")) as usize, wav.len() - 8);
    }
}
