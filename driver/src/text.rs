//! Text files that a person has written: configuration, and the like.

use std::fs::File;
use std::io::{Error, Read as _, Result};
use std::path::Path;

/// Bytes that such a file has at most.
pub const MOST: u64 = 16 << 20;

/// All of a file's text.
///
/// # Errors
/// As [`std::fs::read_to_string`]; a file of more than [`MOST`] bytes, such as a device that has no end, which would be
/// read for ever.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(Error::other(format!(
            "it has more than {MOST} bytes, and is no text that somebody has written"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let error = read("/dev/zero").unwrap_err();
        assert!(error.to_string().contains("more than 16777216 bytes"), "{error}");
        assert_eq!(read("/nowhere/at/all").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read("/dev/null").unwrap(), "");
        let path = std::env::temp_dir().join(format!("uvia-text-{}", std::process::id()));
        std::fs::write(&path, "a\nb").unwrap();
        let text = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.unwrap(), "a\nb");
    }
}
