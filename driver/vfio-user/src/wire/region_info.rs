//! Which parts of a region can be mapped: the chain of capabilities behind a region's description.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::{CapabilityHeader, RegionInfo, SparseArea, SparseHeader, region_flags};

const SPARSE: u16 = 1;

/// A chain has no more capabilities than this, and a region no more areas: VFIO has three kinds of capabilities.
const MOST: usize = 1024;

/// Which parts of a region can be mapped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RegionAreas {
    /// None.
    #[default]
    None,
    /// All of it.
    Whole,
    /// These, by offset in the region.
    Sparse(Vec<Range<u64>>),
}

impl RegionAreas {
    /// The whole reply: `info`, completed, and its capabilities.
    pub fn to_reply(&self, mut info: RegionInfo) -> Vec<u8> {
        let fixed = size_of::<RegionInfo>();
        info.argsz = fixed as u32;
        let mut chain = Vec::new();
        match self {
            Self::None => {}
            Self::Whole => info.flags |= region_flags::MMAP,
            Self::Sparse(areas) => {
                info.flags |= region_flags::MMAP | region_flags::CAPS;
                info.cap_offset = fixed as u32;
                chain.extend_from_slice(CapabilityHeader { id: SPARSE, version: 1, next: 0 }.as_bytes());
                chain
                    .extend_from_slice(SparseHeader { nr_areas: areas.len() as u32, reserved: 0 }.as_bytes());
                for area in areas {
                    let area = SparseArea { offset: area.start, size: area.end - area.start };
                    chain.extend_from_slice(area.as_bytes());
                }
                info.argsz += chain.len() as u32;
            }
        }
        let mut bytes = info.as_bytes().to_vec();
        bytes.extend_from_slice(&chain);
        bytes
    }

    /// Reads a whole reply. Areas that do not lie within the region are an error, as are chains that lead nowhere.
    ///
    /// # Errors
    /// In words.
    pub fn parse(reply: &[u8]) -> Result<(RegionInfo, Self), String> {
        let (info, _) = RegionInfo::read_from_prefix(reply)
            .map_err(|_| format!("{} bytes are no region's description", reply.len()))?;
        if info.flags & region_flags::MMAP == 0 {
            return Ok((info, Self::None));
        }
        let mut areas = None;
        let mut next = if info.flags & region_flags::CAPS == 0 { 0 } else { info.cap_offset as usize };
        let mut last = 0;
        while next != 0 {
            // Ascending, else it could go on for ever.
            if next <= last {
                return Err(format!("the chain of capabilities leads from {last} back to {next}"));
            }
            let at = reply.get(next..).unwrap_or_default();
            let (header, rest) = CapabilityHeader::read_from_prefix(at)
                .map_err(|_| format!("a capability at {next} is beyond the description's end"))?;
            if header.id == SPARSE {
                areas = Some(parse_areas(rest, info.size)?);
            }
            last = next;
            next = header.next as usize;
        }
        Ok((info, areas.map_or(Self::Whole, Self::Sparse)))
    }
}

fn parse_areas(bytes: &[u8], region: u64) -> Result<Vec<Range<u64>>, String> {
    let (header, mut rest) =
        SparseHeader::read_from_prefix(bytes).map_err(|_| "mappable areas are cut short".to_owned())?;
    if header.nr_areas as usize > MOST {
        return Err(format!("{} mappable areas are more than can be meant", header.nr_areas));
    }
    let mut areas = Vec::new();
    for _ in 0..header.nr_areas {
        let (area, more) =
            SparseArea::read_from_prefix(rest).map_err(|_| "mappable areas are cut short".to_owned())?;
        rest = more;
        match area.offset.checked_add(area.size) {
            Some(end) if end <= region && area.size > 0 => areas.push(area.offset..end),
            _ => {
                return Err(format!(
                    "a mappable area {:#x}+{:#x} is not within the region's {region:#x} bytes",
                    area.offset, area.size
                ));
            }
        }
    }
    Ok(areas)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(size: u64) -> RegionInfo {
        RegionInfo { flags: region_flags::READ, index: 2, size, offset: 0x3000, ..RegionInfo::default() }
    }

    #[test]
    fn reads_what_it_writes() {
        for areas in [
            RegionAreas::None,
            RegionAreas::Whole,
            RegionAreas::Sparse(vec![0x1000..0x2000, 0x3000..0x4000]),
            RegionAreas::Sparse(vec![]),
        ] {
            let reply = areas.to_reply(info(0x4000));
            let (parsed, found) = RegionAreas::parse(&reply).unwrap();
            assert_eq!((parsed.argsz as usize, parsed.size, parsed.offset), (reply.len(), 0x4000, 0x3000));
            assert_eq!(found, areas);
        }
    }

    #[test]
    fn areas_beyond_the_region_are_refused() {
        for area in [0x3000..0x4001, 0x4000..0x5000, 0x1000..0x1000] {
            assert!(RegionAreas::parse(&RegionAreas::Sparse(vec![area]).to_reply(info(0x4000))).is_err());
        }
    }

    #[test]
    fn a_chain_that_loops_ends() {
        let mut reply = RegionAreas::Sparse(vec![0..0x1000, 0x2000..0x3000]).to_reply(info(0x4000));
        reply[36] = 32; // next: itself
        assert!(RegionAreas::parse(&reply).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RegionAreas::parse(&bytes);
            if bytes.len() > 16 {
                bytes[4] |= 12;
                bytes[12..16].copy_from_slice(&[32, 0, 0, 0]);
                let _ = RegionAreas::parse(&bytes);
            }
        }
    }
}
