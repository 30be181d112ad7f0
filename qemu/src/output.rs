//! Output of several guests on one stream.

/// Puts a prefix before every line, whatever pieces the bytes come in.
#[derive(Debug)]
pub struct Prefixer {
    prefix: Vec<u8>,
    partial: Vec<u8>,
}

impl Prefixer {
    /// A prefixer.
    pub fn new(prefix: impl Into<Vec<u8>>) -> Self {
        Prefixer { prefix: prefix.into(), partial: Vec::new() }
    }

    /// Takes some bytes and gives the lines that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                lines.extend_from_slice(&self.prefix);
                lines.append(&mut self.partial);
            }
        }
        lines
    }

    /// Gives the last line if it has no end; it gets one, so that no other guest's line continues it.
    pub fn finish(&mut self) -> Vec<u8> {
        if self.partial.is_empty() { Vec::new() } else { self.push(b"\n") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prefixed_however_they_are_cut() {
        let text = b"one\n\ntwo\xff\nlast";
        let want = b"1: one\n1: \n1: two\xff\n1: last\n";
        for size in 1..=text.len() {
            let mut prefixer = Prefixer::new("1: ");
            let mut got: Vec<u8> = text.chunks(size).flat_map(|chunk| prefixer.push(chunk)).collect();
            got.extend(prefixer.finish());
            assert_eq!(got, want, "in pieces of {size}");
        }
    }

    #[test]
    fn nothing_stays_nothing() {
        let mut prefixer = Prefixer::new("1: ");
        assert!(prefixer.push(b"").is_empty());
        assert!(prefixer.finish().is_empty());
    }
}
