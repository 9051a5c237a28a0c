//! The file of the key behind session ids and cursors.
//!
//! Never shows a key, never takes one that others may read, and never writes over a file.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rejoin::Key;

/// What a key file says before the key: what it is, and in which form.
const HEADER: &str = "rejoin-key-1 ";

/// Bytes of a key.
const KEY_BYTES: usize = 16;

/// Bytes of a key file: header, two hexadecimal digits a byte, a line feed.
const FILE_BYTES: usize = HEADER.len() + 2 * KEY_BYTES + 1;

/// The permissions of everyone but the owner.
const OTHERS: u32 = 0o077;

/// Why a key file was not taken.
#[derive(Debug)]
pub(crate) struct BadKey {
    file: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Unreadable(io::Error),
    Unmade(io::Error),
    NoFile,
    Open(u32),
    Form(&'static str),
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        write!(f, "--key-file {file}: ")?;
        match &self.why {
            Why::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Why::Unmade(error) => write!(f, "cannot be made: {error}"),
            Why::NoFile => f.write_str("is not a regular file"),
            Why::Open(mode) => write!(f, "others than its owner may use it (mode {mode:04o}): chmod 600 {file}"),
            Why::Form(why) => write!(f, "{why}; a key file is one line, `rejoin-key-1` and 32 hexadecimal digits"),
        }
    }
}

impl std::error::Error for BadKey {}

/// The key of a file, which is made with a fresh one where it is missing.
pub(crate) fn read_or_make(file: &Path) -> Result<Key, BadKey> {
    let read = |file| match read(file) {
        Err(Why::Unreadable(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    };
    let key = read(file).and_then(|found| match found {
        Some(key) => Ok(key),
        None => {
            make(file).map_err(Why::Unmade)?;
            // What is there now is what the next start will read, whoever of several at once made it.
            self::read(file)
        }
    });
    key.map_err(|why| BadKey { file: file.into(), why })
}

fn read(file: &Path) -> Result<Key, Why> {
    // A pipe in its place must not hold us.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(file).map_err(Why::Unreadable)?;
    let metadata = opened.metadata().map_err(Why::Unreadable)?;
    if !metadata.is_file() {
        return Err(Why::NoFile);
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(Why::Open(mode));
    }
    let mut bytes = Vec::with_capacity(FILE_BYTES + 1);
    opened.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(Why::Unreadable)?;
    parse(&bytes).map_err(Why::Form)
}

/// The key in a file's bytes. The line feed may be missing: an editor or a secret store may have cut it off.
fn parse(bytes: &[u8]) -> Result<Key, &'static str> {
    if bytes.is_empty() {
        return Err("is empty");
    }
    let digits = bytes.strip_prefix(HEADER.as_bytes()).ok_or("does not begin with `rejoin-key-1 `")?;
    let digits = digits.strip_suffix(b"\n").unwrap_or(digits);
    if digits.len() != 2 * KEY_BYTES {
        return Err(if digits.len() < 2 * KEY_BYTES { "is too short" } else { "is too long" });
    }
    let mut key = [0; KEY_BYTES];
    for (byte, [high, low]) in key.iter_mut().zip(digits.as_chunks().0) {
        let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = digit(high).zip(digit(low)).ok_or("has something else than hexadecimal digits")?;
        *byte = high << 4 | low;
    }
    Ok(Key::new(key))
}

/// Makes a file with a fresh key: whole, on disk, for its owner alone, or not at all. One that another process made meanwhile stays.
fn make(file: &Path) -> io::Result<()> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key)?;
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let permissions = fs::Permissions::from_mode(0o600);
    let mut made = tempfile::Builder::new().prefix(".rejoin-key-").permissions(permissions).tempfile_in(folder)?;
    made.write_all(format!("{HEADER}{digits}\n").as_bytes())?;
    made.as_file().sync_all()?;
    match made.persist_noclobber(file) {
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made.map_err(|error| error.error)?,
    };
    // The name is on disk too, before any id is made with the key.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rejoin-key-1 000102030405060708090A0b0c0d0e0f\n";

    fn written(text: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("permitted");
        (folder, file)
    }

    fn refusal(file: &Path) -> String {
        read_or_make(file).expect_err("refused").to_string()
    }

    #[test]
    fn a_missing_file_is_made_for_its_owner_alone_and_gives_the_same_key_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        let key = read_or_make(&file).expect("made");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read(&file).expect("read").len(), FILE_BYTES);
        assert!(read_or_make(&file).expect("read") == key);
        let other = read_or_make(&folder.path().join("other")).expect("made");
        assert!(other != key, "keys are random");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
    }

    #[test]
    fn those_who_make_it_at_once_have_one_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| read_or_make(&file).expect("made"))).collect();
            makers.into_iter().map(|maker| maker.join().expect("no panic")).collect()
        });
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn the_form_is_read_with_or_without_its_line_feed() {
        let expected = Key::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        for text in [TEXT, TEXT.trim_end()] {
            let (_folder, file) = written(text.as_bytes(), 0o600);
            assert!(read_or_make(&file).expect("a key") == expected);
        }
        let (_folder, file) = written(TEXT.as_bytes(), 0o400);
        assert!(read_or_make(&file).is_ok(), "one that even its owner may only read");
    }

    #[test]
    fn a_file_that_others_may_use_is_refused_with_what_to_do() {
        for mode in [0o601, 0o604, 0o620, 0o640, 0o660, 0o644] {
            let (_folder, file) = written(TEXT.as_bytes(), mode);
            let said = refusal(&file);
            assert!(said.contains(&format!("(mode {mode:04o}): chmod 600 ")), "{said}");
        }
    }

    #[test]
    fn a_garbled_file_is_refused_by_its_mistake_and_not_shown() {
        for (text, why) in [
            (&b""[..], "is empty"),
            (b"rejoin-key-1 ", "too short"),
            (b"rejoin-key-1 000102030405060708090a0b0c0d0e0", "too short"),
            (b"rejoin-key-1 000102030405060708090a0b0c0d0e0f0", "too long"),
            (b"rejoin-key-1 000102030405060708090a0b0c0d0e0f\n\n", "too long"),
            (b"rejoin-key-1 000102030405060708090a0b0c0d0e0g\n", "hexadecimal"),
            (b"rejoin-key-1 +0010203040506070809 0b0c0d0e0fff\n", "hexadecimal"),
            (b"rejoin-key-2 000102030405060708090a0b0c0d0e0f\n", "does not begin"),
            (b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff", "does not begin"),
        ] {
            let (_folder, file) = written(text, 0o600);
            let said = refusal(&file);
            assert!(said.contains(why) && said.contains("key: ") && !said.contains("0102"), "{said}");
            assert_eq!(fs::read(&file).expect("there"), text, "it stays as it was");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(refusal(folder.path()).contains("not a regular file"));
        assert!(refusal(&folder.path().join("none/key")).contains("cannot be made"));
    }
}
