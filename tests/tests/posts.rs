//! Posts that come while another thread has the engine.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use uvia::{Nic, NicOptions};
use uvia_driver::nic::{self as adapter, Link, NicProperties, NicStatistics, RxFilter, RxFrame, TxFrame};
use uvia_tests::{End, PATIENCE, join, memory_pair};

/// What is to be done at the next frame, before it is looked at.
type Interlude = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// An adapter in the middle of whose burst something happens: the engine is taken then, as if by another thread.
struct Interrupted {
    inner: Box<dyn adapter::Nic>,
    interlude: Interlude,
}

impl adapter::Nic for Interrupted {
    fn properties(&self) -> &NicProperties {
        self.inner.properties()
    }
    fn link(&mut self) -> uvia_driver::Result<Link> {
        self.inner.link()
    }
    fn ready(&mut self) -> uvia_driver::Result<bool> {
        self.inner.ready()
    }
    fn transmit(&mut self, frame: &TxFrame<'_>) -> uvia_driver::Result<bool> {
        self.inner.transmit(frame)
    }
    fn flush(&mut self) -> uvia_driver::Result<()> {
        self.inner.flush()
    }
    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> uvia_driver::Result<usize> {
        self.inner.reclaim(done)
    }
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> uvia_driver::Result<usize> {
        let interlude = &self.interlude;
        self.inner.receive(budget, &mut |frame| {
            let next = interlude.lock().unwrap().take();
            if let Some(interlude) = next {
                interlude();
            }
            sink(frame);
        })
    }
    fn statistics(&mut self) -> NicStatistics {
        self.inner.statistics()
    }
    fn set_filter(&mut self, filter: RxFilter) -> uvia_driver::Result<()> {
        self.inner.set_filter(filter)
    }
    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.inner.interrupt()
    }
    fn arm(&mut self, on: bool) -> uvia_driver::Result<()> {
        self.inner.arm(on)
    }
    fn reset(&mut self) -> uvia_driver::Result<()> {
        self.inner.reset()
    }
}

/// A receive that is posted, and only then the message sent: the message finds it, also where the post came while another
/// thread was taking frames from the adapter and the message is among these.
#[test]
fn a_receive_that_is_posted_in_the_middle_of_a_burst_is_there_for_its_frames() {
    let (a, b, domain) = memory_pair();
    let interlude = Interlude::default();
    let open = |adapter, name: &str| {
        let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
        Nic::with_adapter(adapter, domain.clone(), options).unwrap()
    };
    let b = Box::new(Interrupted { inner: b, interlude: interlude.clone() });
    let (a, b) = (End::new(open(a, "a"), |_| ()).unwrap(), End::new(open(b, "b"), |_| ()).unwrap());
    join(&a, &b, b"there").unwrap();
    let (source, target) = (a.memory(64).unwrap(), b.memory(64).unwrap());
    let b = Arc::new(b);
    for n in 0..20u8 {
        source.write(0, &[n; 64]).unwrap();
        let receive = uvia::Descriptor::new(vec![target.segment(0..64).unwrap()]);
        let there = b.clone();
        // A send of the other way too, which is posted meanwhile and goes all the same.
        let back = uvia::Descriptor::new(vec![target.segment(0..0).unwrap()]);
        let again = uvia::Descriptor::new(vec![source.segment(0..0).unwrap()]);
        a.vi.post_receive(again).unwrap();
        *interlude.lock().unwrap() = Some(Box::new(move || {
            there.vi.post_receive(receive).unwrap();
            there.vi.post_send(back).unwrap();
        }));
        a.vi.post_send(uvia::Descriptor::new(vec![source.segment(0..64).unwrap()])).unwrap();
        let mut completions = 0;
        let start = std::time::Instant::now();
        while completions < 4 {
            for end in [&a, &*b] {
                while let Some(done) = end.cq.poll().unwrap() {
                    let status = done.descriptor.status();
                    assert!(status.is_success(), "message {n}, {:?}: {status:?}", done.queue);
                    completions += 1;
                }
            }
            assert!(start.elapsed() < PATIENCE, "message {n}: {completions} completions of four");
        }
        let mut bytes = [0; 64];
        target.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [n; 64]);
    }
}
