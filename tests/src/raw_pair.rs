//! Two adapters and nothing above them: what a raw frame costs.

use std::sync::Arc;

use uvia_driver::dma::{DmaDomain, DmaMemory, Rights};
use uvia_driver::nic::{Nic, TxFrame};

/// Two ends that send each other one frame at a time.
pub struct RawPair {
    ends: [(Box<dyn Nic>, DmaMemory); 2],
    len: usize,
    into: [u8; 2048],
}

impl RawPair {
    /// Frames of `payload` bytes after the Ethernet header, at least the shortest frame.
    pub fn new(a: Box<dyn Nic>, b: Box<dyn Nic>, domain: Arc<dyn DmaDomain>, payload: usize) -> Self {
        let len = (payload + 14).max(60);
        let memory = |from: &dyn Nic, to: &dyn Nic| {
            let memory = DmaMemory::allocate(domain.clone(), len, Rights::READ)
                .expect("memory for one frame is there");
            memory.write_bytes(0, &to.properties().mac.0);
            memory.write_bytes(6, &from.properties().mac.0);
            memory.write_bytes(12, &[0x88, 0xb6]);
            memory
        };
        let (of_a, of_b) = (memory(&*a, &*b), memory(&*b, &*a));
        Self { ends: [(a, of_a), (b, of_b)], len, into: [0; 2048] }
    }

    /// `burst` frames each way, their payloads copied out at the receiver.
    #[inline]
    pub fn round(&mut self, burst: usize) {
        self.leg(0, burst);
        self.leg(1, burst);
    }

    fn leg(&mut self, from: usize, burst: usize) {
        let len = self.len;
        let (nic, memory) = &mut self.ends[from];
        let segment = [memory.segment(0..len).expect("within the memory")];
        nic.reclaim(&mut |_| ()).expect("the adapter works");
        for _ in 0..burst {
            assert!(nic.transmit(&TxFrame { segments: &segment, token: 0 }).expect("the adapter works"));
        }
        nic.flush().expect("the adapter works");
        let into = &mut self.into;
        let mut got = 0;
        while got < burst {
            self.ends[1 - from]
                .0
                .receive(64, &mut |frame| {
                    got += usize::from(frame.len() == len && frame.read(0, &mut into[..len]));
                })
                .expect("the adapter works");
        }
    }
}
