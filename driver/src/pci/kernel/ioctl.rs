//! The VFIO calls that we make ourselves.
//!
//! vfio-ioctls opens containers, groups and devices. It always maps for reading and writing, does not report
//! the limits of the IOMMU, and loses the errno of resets, interrupts and register accesses: those calls are
//! here, over the kernel's own structures (linux/vfio.h, by vfio-bindings).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use vfio_bindings::bindings::vfio;

use crate::dma::Rights;

const fn number(n: u32) -> libc::Ioctl {
    libc::_IO(vfio::VFIO_TYPE as u32, vfio::VFIO_BASE + n)
}

const DEVICE_SET_IRQS: libc::Ioctl = number(10);
const DEVICE_RESET: libc::Ioctl = number(11);
// These three share numbers with device calls; which is meant depends on the file.
const IOMMU_GET_INFO: libc::Ioctl = number(12);
const IOMMU_MAP_DMA: libc::Ioctl = number(13);
const IOMMU_UNMAP_DMA: libc::Ioctl = number(14);

/// Answers of more bytes than this are no answer to GET_INFO: a page holds 250 IOVA ranges.
const MOST_INFO: usize = 1 << 16;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Pins and maps memory.
///
/// # Safety
/// As for [`crate::dma::DmaDomain::map`]: until it is unmapped, devices may access the memory at any time.
pub unsafe fn map_dma(
    container: BorrowedFd<'_>,
    iova: u64,
    address: *mut u8,
    len: u64,
    rights: Rights,
) -> io::Result<()> {
    let mut flags = 0;
    if rights.contains(Rights::READ) {
        flags |= vfio::VFIO_DMA_MAP_FLAG_READ;
    }
    if rights.contains(Rights::WRITE) {
        flags |= vfio::VFIO_DMA_MAP_FLAG_WRITE;
    }
    let map = vfio::vfio_iommu_type1_dma_map {
        argsz: size_of::<vfio::vfio_iommu_type1_dma_map>() as u32,
        flags,
        vaddr: address as u64,
        iova,
        size: len,
    };
    // SAFETY: `map` is what the call reads, and of the size it says; what devices then do with the memory is
    // the caller's contract.
    check(unsafe { libc::ioctl(container.as_raw_fd(), IOMMU_MAP_DMA, &map) })
}

/// Unmaps a range; answers how many bytes were mapped in it.
pub fn unmap_dma(container: BorrowedFd<'_>, iova: u64, len: u64) -> io::Result<u64> {
    let mut unmap = vfio::vfio_iommu_type1_dma_unmap {
        argsz: size_of::<vfio::vfio_iommu_type1_dma_unmap>() as u32,
        iova,
        size: len,
        ..Default::default()
    };
    // SAFETY: `unmap` is what the call reads and writes, and of the size it says. Taking access away from
    // devices endangers no memory of ours.
    check(unsafe { libc::ioctl(container.as_raw_fd(), IOMMU_UNMAP_DMA, &mut unmap) })?;
    Ok(unmap.size)
}

/// The IOMMU's description: a `vfio_iommu_type1_info` with its chain of capabilities, as bytes.
pub fn iommu_info(container: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut len = size_of::<vfio::vfio_iommu_type1_info>();
    loop {
        // Words, so that the kernel's structure is aligned.
        let mut words = vec![0u64; len.div_ceil(size_of::<u64>())];
        let space = words.len() * size_of::<u64>();
        let head = (space as u32).to_ne_bytes(); // argsz; flags are an answer
        words[0] = u64::from_ne_bytes([head[0], head[1], head[2], head[3], 0, 0, 0, 0]);
        // SAFETY: the buffer has as many bytes as its first field says, and the kernel writes no more.
        check(unsafe { libc::ioctl(container.as_raw_fd(), IOMMU_GET_INFO, words.as_mut_ptr()) })?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let want = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if want <= space {
            return Ok(bytes);
        }
        if want > MOST_INFO {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the kernel asks for {want} bytes to describe an IOMMU"),
            ));
        }
        len = want;
    }
}

/// Resets a device. `EINVAL`: the platform has no way to.
pub fn device_reset(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), DEVICE_RESET) })
}

/// Routes vectors 0 to n of interrupt index `index` to eventfds.
pub fn route_interrupts(device: BorrowedFd<'_>, index: u32, vectors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let fds: Vec<u32> = vectors.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    let flags = vfio::VFIO_IRQ_SET_DATA_EVENTFD | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
    set_irqs(device, flags, index, fds.len() as u32, &fds)
}

/// Takes all routing of interrupt index `index` away.
pub fn unroute_interrupts(device: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let flags = vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
    set_irqs(device, flags, index, 0, &[])
}

/// Lets vector 0 of interrupt index `index` through again.
pub fn unmask_interrupt(device: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let flags = vfio::VFIO_IRQ_SET_DATA_NONE | vfio::VFIO_IRQ_SET_ACTION_UNMASK;
    set_irqs(device, flags, index, 1, &[])
}

/// Reads a register or configuration space in one call: the kernel makes it one access of its own size where
/// it can.
pub fn read_at(device: BorrowedFd<'_>, into: &mut [u8], at: u64) -> io::Result<()> {
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`.
    let result = unsafe {
        libc::pread64(device.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), at as libc::off64_t)
    };
    whole(result, into.len())
}

/// Writes a register or configuration space in one call.
pub fn write_at(device: BorrowedFd<'_>, from: &[u8], at: u64) -> io::Result<()> {
    // SAFETY: the kernel reads at most `from.len()` bytes of `from`. What a register write makes the device
    // do is bounded by what is mapped in its domain.
    let result =
        unsafe { libc::pwrite64(device.as_raw_fd(), from.as_ptr().cast(), from.len(), at as libc::off64_t) };
    whole(result, from.len())
}

fn whole(result: libc::ssize_t, len: usize) -> io::Result<()> {
    match usize::try_from(result) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(done) if done == len => Ok(()),
        Ok(done) => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the kernel moved {done} bytes of {len}"),
        )),
    }
}

fn set_irqs(device: BorrowedFd<'_>, flags: u32, index: u32, count: u32, data: &[u32]) -> io::Result<()> {
    // struct vfio_irq_set is five words and then the data.
    let header = size_of::<vfio::vfio_irq_set>();
    let mut set = vec![(header + size_of_val(data)) as u32, flags, index, 0, count];
    set.extend_from_slice(data);
    // SAFETY: `set` has as many bytes as its first field says, and the kernel only reads it. It takes its own
    // references to the eventfds.
    check(unsafe { libc::ioctl(device.as_raw_fd(), DEVICE_SET_IRQS, set.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_kernel_answers_with_an_errno() {
        let not_vfio = std::fs::File::open("/dev/null").unwrap();
        for result in [
            iommu_info(not_vfio.as_fd()).map(drop),
            unmap_dma(not_vfio.as_fd(), 0x1000, 0x1000).map(drop),
            device_reset(not_vfio.as_fd()),
            route_interrupts(not_vfio.as_fd(), 0, &[not_vfio.as_fd()]),
            unroute_interrupts(not_vfio.as_fd(), 0),
            unmask_interrupt(not_vfio.as_fd(), 0),
        ] {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        }
    }

    #[test]
    fn numbers_are_those_of_linux_vfio_h() {
        assert_eq!(IOMMU_GET_INFO, 0x3b70);
        assert_eq!(IOMMU_MAP_DMA, 0x3b71);
        assert_eq!(IOMMU_UNMAP_DMA, 0x3b72);
        assert_eq!(DEVICE_SET_IRQS, 0x3b6e);
        assert_eq!(DEVICE_RESET, 0x3b6f);
        assert_eq!(size_of::<vfio::vfio_irq_set>(), 5 * size_of::<u32>());
    }
}
