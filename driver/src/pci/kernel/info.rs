//! Reads the kernel's description of an IOMMU (`vfio_iommu_type1_info` and the capabilities chained to it).

use std::ops::RangeInclusive;

use vfio_bindings::bindings::vfio;

/// What a container's IOMMU can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IommuInfo {
    /// The smallest page, bytes.
    pub page_size: u64,
    /// Usable I/O virtual addresses. Kernels before 5.4 do not tell: then all are taken for usable, and the
    /// kernel's refusal is the limit.
    pub apertures: Vec<RangeInclusive<u64>>,
    /// How many more mappings can be made, where the kernel tells (since 5.10).
    pub mappings_left: Option<u64>,
}

impl IommuInfo {
    /// From the bytes of GET_INFO. What does not fit into them is left out.
    pub fn parse(bytes: &[u8]) -> Self {
        let flags = u32_at(bytes, 4).unwrap_or(0);
        let page_sizes = u64_at(bytes, 8).filter(|_| flags & vfio::VFIO_IOMMU_INFO_PGSIZES != 0).unwrap_or(0);
        let page_size = if page_sizes == 0 { 4096 } else { 1 << page_sizes.trailing_zeros() };
        let mut info = Self { page_size, apertures: Vec::new(), mappings_left: None };
        let mut next = match flags & vfio::VFIO_IOMMU_INFO_CAPS {
            0 => 0,
            _ => u32_at(bytes, 16).unwrap_or(0) as usize,
        };
        // The chain ascends in every kernel; a step back would be a loop.
        let mut last = 0;
        while next > last {
            let Some(id) = u16_at(bytes, next) else { break };
            match u32::from(id) {
                vfio::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => info.apertures = ranges(bytes, next),
                vfio::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => {
                    info.mappings_left = u32_at(bytes, next + 8).map(u64::from);
                }
                _ => {}
            }
            last = next;
            next = u32_at(bytes, next + 4).unwrap_or(0) as usize;
        }
        if info.apertures.is_empty() {
            info.apertures.push(0..=u64::MAX);
        }
        info
    }
}

/// `vfio_iommu_type1_info_cap_iova_range`: a header of 8 bytes, the count, a reserved word, the ranges.
fn ranges(bytes: &[u8], at: usize) -> Vec<RangeInclusive<u64>> {
    let count = u32_at(bytes, at + 8).unwrap_or(0) as usize;
    let one = |n: usize| {
        let start = at.checked_add(16)?.checked_add(n.checked_mul(16)?)?;
        Some(u64_at(bytes, start)?..=u64_at(bytes, start + 8)?)
    };
    (0..count).map_while(one).collect()
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Answer(Vec<u8>);

    impl Answer {
        fn new(flags: u32, page_sizes: u64, first: u32) -> Self {
            let mut bytes = Vec::new();
            bytes.extend(0u32.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(page_sizes.to_ne_bytes());
            bytes.extend(first.to_ne_bytes());
            bytes.extend(0u32.to_ne_bytes());
            Self(bytes)
        }

        fn header(mut self, id: u16, next: u32) -> Self {
            self.0.extend(id.to_ne_bytes());
            self.0.extend(1u16.to_ne_bytes());
            self.0.extend(next.to_ne_bytes());
            self
        }

        fn u32(mut self, value: u32) -> Self {
            self.0.extend(value.to_ne_bytes());
            self
        }

        fn u64(mut self, value: u64) -> Self {
            self.0.extend(value.to_ne_bytes());
            self
        }
    }

    /// As a 6.1 kernel answers over an emulated VT-d.
    fn real() -> Answer {
        Answer::new(3, 0x4020_1000, 24)
            .header(1, 72) // IOVA ranges: 8 + 8 + 2 * 16 bytes
            .u32(2)
            .u32(0)
            .u64(0)
            .u64(0xfedf_ffff)
            .u64(0xfef0_0000)
            .u64((1 << 39) - 1)
            .header(3, 0)
            .u32(65535)
    }

    #[test]
    fn reads_ranges_and_what_is_left() {
        let info = IommuInfo::parse(&real().0);
        assert_eq!(info.page_size, 4096);
        assert_eq!(info.apertures, [0..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1]);
        assert_eq!(info.mappings_left, Some(65535));
    }

    #[test]
    fn old_kernels_tell_nothing() {
        let info = IommuInfo::parse(&Answer::new(1, 0x1000, 0).0);
        assert_eq!(info, IommuInfo { page_size: 4096, apertures: vec![0..=u64::MAX], mappings_left: None });
    }

    #[test]
    fn cut_short_or_looping_it_still_ends() {
        let whole = real().0;
        for len in 0..whole.len() {
            IommuInfo::parse(&whole[..len]);
        }
        let looping = Answer::new(3, 0x1000, 24).header(9, 24);
        IommuInfo::parse(&looping.0);
        let wild = Answer::new(3, 0x1000, 24).header(1, u32::MAX).u32(u32::MAX).u32(0);
        IommuInfo::parse(&wild.0);
    }
}
