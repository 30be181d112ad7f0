//! The conformance suite on devices as they are, and what only a guest can show. Two NICs back to back, named by
//! UVIA_NIC_A and UVIA_NIC_B, on vfio-pci in a machine with an IOMMU. Run as root, one test at a time: `tests/run` does
//! so in guests.

use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use uvia_driver::dma::{DmaRegion, DmaSegment, Rights};
use uvia_driver::nic::TxFrame;
use uvia_tests::bench::InGuest;
use uvia_tests::conformance;
use uvia_tests::conformance::{PATIENCE, Pair};

conformance!(nics in a guest: InGuest);

/// What the kernel logs from now on.
struct KernelLog(File);

impl KernelLog {
    fn from_now() -> Self {
        let mut log = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .expect("/dev/kmsg, as root");
        log.seek(SeekFrom::End(0)).unwrap();
        Self(log)
    }

    /// Whether a line with all these words comes within a second.
    fn says(&mut self, words: &[&str]) -> bool {
        let start = Instant::now();
        let mut record = [0; 8192];
        while start.elapsed() < Duration::from_secs(1) {
            match self.0.read(&mut record) {
                Ok(len) => {
                    let line = String::from_utf8_lossy(&record[..len]);
                    if words.iter().all(|word| line.contains(word)) {
                        println!("the kernel says: {}", line.lines().next().unwrap_or_default());
                        return true;
                    }
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
        false
    }
}

/// The IOMMU is on, or this fails: a descriptor that the interface would never let anybody make points to
/// memory that was registered once and is no more, and holds a secret.
#[test]
#[ignore = "needs a guest with a vIOMMU: tests/run runs it there"]
fn stray_dma_is_blocked() {
    const SECRET: &[u8] = b"not for the wire";
    let mut pair = Pair::usual(&InGuest);
    for backwards in [false, true] {
        let (from, to) = if backwards { (&mut pair.b, &mut pair.a) } else { (&mut pair.a, &mut pair.b) };
        let mut page = memmap2::MmapMut::map_anon(4096).unwrap();
        let header = [&from.peer.0[..], &from.mac().0, &[0x88, 0xb6]].concat();
        for chunk in page.chunks_exact_mut(SECRET.len()) {
            chunk.copy_from_slice(SECRET);
        }
        page[..header.len()].copy_from_slice(&header);
        let domain = from.domain.clone();
        // SAFETY: `page` outlives the region, which is unmapped at once, and is not written any more.
        let region = unsafe { DmaRegion::register(domain, page.as_mut_ptr(), 4096, Rights::READ) }.unwrap();
        // It is reachable while it is registered: the secret itself passes, so the test can see it.
        let whole = region.segment(0..1024).unwrap();
        assert!(from.nic.transmit(&TxFrame { segments: &[whole], token: 1 }).unwrap());
        from.nic.flush().unwrap();
        to.expect(&[page[..1024].to_vec()]);
        let start = Instant::now();
        while from.nic.reclaim(&mut |token| assert_eq!(token, 1)).unwrap() == 0 {
            assert!(start.elapsed() < PATIENCE, "the token did not come back");
        }

        let mut log = KernelLog::from_now();
        let iova = region.iova();
        drop(region);
        // SAFETY: the address is mapped for nothing, which is the point.
        let stray = unsafe { DmaSegment::unchecked(iova, 1024) };
        assert!(from.nic.transmit(&TxFrame { segments: &[stray], token: 2 }).unwrap());
        from.nic.flush().unwrap();
        // Of a NIC that another process serves, that process checks the accesses, and the IOMMU sees nothing.
        if env::var_os("UVIA_NICS_SERVED").is_none() {
            assert!(log.says(&["DMAR", "fault"]), "the IOMMU logged no fault: is it on?");
        }
        let mut frames = 0;
        to.nic
            .receive(64, &mut |frame| {
                let mut bytes = vec![0; frame.len()];
                assert!(frame.read(0, &mut bytes));
                assert!(!bytes.windows(SECRET.len()).any(|w| w == SECRET), "the secret went out");
                frames += 1;
            })
            .unwrap();
        println!("{}: {frames} frames came of it", from.nic.properties().driver);

        // Whatever the device made of it, it works again after a reset.
        from.nic.reset().unwrap();
        from.nic.reclaim(&mut |token| assert_eq!(token, 2)).unwrap();
        pair.sync();
        pair.exchange();
    }
}
