//! Writes cpio archives in the form "newc", which the kernel unpacks as its initramfs.

use std::io::{self, Read, Write};

const DIR: u32 = 0o040000;
const FILE: u32 = 0o100000;
const LINK: u32 = 0o120000;

/// A cpio archive being written.
pub struct Archive<W> {
    to: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// Starts an archive.
    pub fn new(to: W) -> Self {
        Archive { to, inode: 0 }
    }

    /// Adds a folder. Its parents must have been added before.
    pub fn dir(&mut self, name: &[u8], mode: u32) -> io::Result<()> {
        self.entry(name, DIR | mode & 0o7777, 0)
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, name: &[u8], target: &[u8]) -> io::Result<()> {
        self.entry(name, LINK | 0o777, target.len() as u64)?;
        self.to.write_all(target)?;
        self.pad(target.len() as u64)
    }

    /// Adds a file of `size` bytes, read from `data`.
    pub fn file(&mut self, name: &[u8], mode: u32, size: u64, data: &mut impl Read) -> io::Result<()> {
        self.entry(name, FILE | mode & 0o7777, size)?;
        let copied = io::copy(&mut data.take(size), &mut self.to)?;
        if copied != size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was packed"));
        }
        self.pad(size)
    }

    /// Ends the archive and gives back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, 0)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &[u8], mode: u32, size: u64) -> io::Result<()> {
        let size = u32::try_from(size).map_err(|_| {
            io::Error::new(io::ErrorKind::FileTooLarge, "an initramfs holds files of less than 4 GiB")
        })?;
        // Two entries with one inode number would be taken for hard links.
        self.inode += 1;
        let (inode, name_len) = (self.inode, name.len() as u32 + 1);
        let links = 1 + u32::from(mode & DIR == DIR);
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_len, 0];
        let mut head = Vec::with_capacity(110 + name.len() + 4);
        head.extend_from_slice(b"070701");
        for field in fields {
            write!(head, "{field:08x}")?;
        }
        head.extend_from_slice(name);
        head.push(0);
        head.resize(head.len().next_multiple_of(4), 0);
        self.to.write_all(&head)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let pad = size.next_multiple_of(4) - size;
        self.to.write_all(&[0; 3][..pad as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back: name, mode, data.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |at: usize| {
                u32::from_str_radix(std::str::from_utf8(&bytes[6 + at * 8..14 + at * 8]).unwrap(), 16)
                    .unwrap()
            };
            let (mode, size, name_len) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_len - 1].to_vec()).unwrap();
            assert_eq!(bytes[110 + name_len - 1], 0);
            let at = (110 + name_len).next_multiple_of(4);
            let data = bytes[at..at + size].to_vec();
            bytes = &bytes[(at + size).next_multiple_of(4)..];
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode, data));
        }
    }

    #[test]
    fn what_is_written_reads_back_with_every_alignment() {
        let mut archive = Archive::new(Vec::new());
        archive.dir(b"d", 0o755).unwrap();
        for size in 0..9usize {
            let data = vec![b'x'; size];
            archive
                .file(format!("d/{}", "n".repeat(size + 1)).as_bytes(), 0o640, size as u64, &mut &data[..])
                .unwrap();
        }
        archive.symlink(b"l", b"d/n").unwrap();
        let entries = read(&archive.finish().unwrap());
        assert_eq!(entries.len(), 11);
        assert_eq!(entries[0], ("d".into(), 0o040755, vec![]));
        for (size, entry) in entries[1..10].iter().enumerate() {
            assert_eq!((entry.1, entry.2.len()), (0o100640, size));
        }
        assert_eq!(entries[10], ("l".into(), 0o120777, b"d/n".to_vec()));
    }

    #[test]
    fn a_file_that_shrinks_or_is_too_large_is_an_error() {
        let mut archive = Archive::new(Vec::new());
        assert!(archive.file(b"f", 0o644, 10, &mut &b"short"[..]).is_err());
        assert!(archive.file(b"f", 0o644, 1 << 32, &mut io::empty()).is_err());
    }
}
