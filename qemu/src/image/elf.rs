//! Reads what little of ELF files is needed: is it one, who loads it, what is it called, one section.

/// The parts of a 64-bit little-endian ELF file that tell how to carry it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elf {
    /// The loader that a program asks for; none for libraries and static programs.
    pub interpreter: Option<String>,
    /// The name that a library goes by.
    pub soname: Option<String>,
    /// Whether it is linked dynamically.
    pub dynamic: bool,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// Reads an ELF file; none if it is not one for this machine.
pub fn parse(bytes: &[u8]) -> Option<Elf> {
    if !is_elf(bytes) {
        return None;
    }
    let (table, size, count) = (u64_at(bytes, 32)?, u16_at(bytes, 54)?, u16_at(bytes, 56)?);
    let segments: Vec<Segment> = (0..u64::from(count))
        .map_while(|i| {
            let at = table.checked_add(i * u64::from(size))?;
            Some(Segment {
                kind: u32_at(bytes, at)?,
                offset: u64_at(bytes, at + 8)?,
                address: u64_at(bytes, at + 16)?,
                size: u64_at(bytes, at + 32)?,
            })
        })
        .collect();
    let mut elf = Elf::default();
    for segment in &segments {
        match segment.kind {
            PT_INTERP => elf.interpreter = string_at(bytes, segment.offset),
            PT_DYNAMIC => {
                elf.dynamic = true;
                elf.soname = soname(bytes, segment, &segments);
            }
            _ => {}
        }
    }
    Some(elf)
}

/// Whether these are the first bytes of an ELF file of 64 bits, little-endian, x86-64.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF\x02\x01") && u16_at(bytes, 18) == Some(62)
}

fn soname(bytes: &[u8], dynamic: &Segment, segments: &[Segment]) -> Option<String> {
    let (mut strings, mut name) = (None, None);
    for at in (dynamic.offset..dynamic.offset.checked_add(dynamic.size)?).step_by(16) {
        let value = u64_at(bytes, at + 8)?;
        match u64_at(bytes, at)? {
            0 => break,
            DT_STRTAB => strings = Some(value),
            DT_SONAME => name = Some(value),
            _ => {}
        }
    }
    let (strings, name) = (strings?, name?);
    // The table is given by its address in memory; the segment that holds it tells the place in the file.
    let load = segments.iter().find(|s| {
        s.kind == PT_LOAD && strings.checked_sub(s.address).is_some_and(|offset| offset < s.size)
    })?;
    string_at(bytes, load.offset.checked_add(strings - load.address)?.checked_add(name)?)
}

/// The bytes of a section, such as `.modinfo` of a kernel module.
pub fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !is_elf(bytes) {
        return None;
    }
    let (table, size) = (u64_at(bytes, 40)?, u64::from(u16_at(bytes, 58)?));
    let (count, names) = (u64::from(u16_at(bytes, 60)?), u64::from(u16_at(bytes, 62)?));
    let header = |index: u64| table.checked_add(index * size);
    let names = u64_at(bytes, header(names)?.checked_add(24)?)?;
    (0..count).find_map(|index| {
        let at = header(index)?;
        let found = string_at(bytes, names.checked_add(u64::from(u32_at(bytes, at)?))?)?;
        if found != name {
            return None;
        }
        let (offset, size) = (u64_at(bytes, at.checked_add(24)?)?, u64_at(bytes, at.checked_add(32)?)?);
        bytes.get(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?)
    })
}

fn array_at<const N: usize>(bytes: &[u8], at: u64) -> Option<[u8; N]> {
    bytes.get(usize::try_from(at).ok()?..)?.first_chunk::<N>().copied()
}

fn u16_at(bytes: &[u8], at: u64) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: u64) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn string_at(bytes: &[u8], at: u64) -> Option<String> {
    let tail = bytes.get(usize::try_from(at).ok()?..)?;
    let end = tail.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&tail[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_names_its_loader_and_sections() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let elf = parse(&bytes).unwrap();
        assert!(elf.dynamic);
        assert!(elf.interpreter.unwrap().contains("ld"));
        assert!(section(&bytes, ".interp").unwrap().starts_with(b"/"));
        assert_eq!(section(&bytes, ".no-such"), None);
    }

    #[test]
    fn the_c_library_names_itself() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|p| p.contains("libc.so"));
        if let Some(path) = libc {
            let elf = parse(&std::fs::read(path).unwrap()).unwrap();
            assert_eq!(elf.soname.as_deref(), Some("libc.so.6"));
        }
    }

    #[test]
    fn cut_and_corrupted_files_do_no_harm() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        for cut in [0, 4, 17, 40, 63, 64, 100, 500] {
            parse(&bytes[..cut]);
            section(&bytes[..cut], ".interp");
        }
        for at in 16..64 {
            let mut broken = bytes[..4096].to_vec();
            broken[at] = 0xff;
            parse(&broken);
            section(&broken, ".interp");
        }
    }
}
