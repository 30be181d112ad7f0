//! The control queue (VIRTIO 1.2, 5.1.6.5): receive modes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::{Access, Virtqueue};
use crate::dma::{DmaDomain, DmaMemory, Rights};
use crate::{DeviceFault, Error, Result};

/// VIRTIO_NET_CTRL_RX.
const CLASS_RX: u8 = 0;
/// VIRTIO_NET_CTRL_RX_PROMISC.
pub(super) const PROMISC: u8 = 0;
/// VIRTIO_NET_CTRL_RX_ALLMULTI.
pub(super) const ALLMULTI: u8 = 1;
/// VIRTIO_NET_OK.
const OK: u8 = 0;
/// What we put where the device is to put OK.
const UNANSWERED: u8 = 0xee;

/// On a busy host an emulated device that does nothing else was seen to take more than a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// Class, command, its datum; the answer lies apart, since the device writes it.
const COMMAND: usize = 0;
const ANSWER: usize = 8;

pub(super) struct ControlQueue<Q> {
    pub(super) queue: Q,
    memory: DmaMemory,
}

/// What a command came to, when the device did nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Refused,
}

impl<Q: Virtqueue<Memory = DmaMemory>> ControlQueue<Q> {
    pub(super) fn new(domain: &Arc<dyn DmaDomain>, index: u16, size: u16) -> Result<Self> {
        Ok(Self {
            queue: Q::in_host(domain, index, size)?,
            memory: DmaMemory::allocate(domain.clone(), 16, Rights::READ | Rights::WRITE)?,
        })
    }

    /// Switches a receive mode, and waits for the answer: not for the data path.
    pub(super) fn receive_mode(
        &mut self,
        device: &str,
        mode: u8,
        on: bool,
    ) -> Result<std::result::Result<Answer, DeviceFault>> {
        self.memory.write_bytes(COMMAND, &[CLASS_RX, mode, u8::from(on)]);
        self.memory.write_bytes(ANSWER, &[UNANSWERED]);
        let parts = [
            (self.memory.segment(COMMAND..COMMAND + 2)?, Access::DeviceReads),
            (self.memory.segment(COMMAND + 2..COMMAND + 3)?, Access::DeviceReads),
            (self.memory.segment(ANSWER..ANSWER + 1)?, Access::DeviceWrites),
        ];
        let late = || Error::Timeout {
            device: device.to_owned(),
            what: "a command on the control queue".to_owned(),
            millis: PATIENCE.as_millis() as u64,
        };
        // No room only when a command before was never answered.
        self.queue.add(parts.len() as u16, parts.into_iter()).ok_or_else(late)?;
        self.queue.show();
        self.queue.notify();
        let start = Instant::now();
        loop {
            match self.queue.take() {
                Err(fault) => return Ok(Err(fault)),
                Ok(Some(used)) => {
                    self.queue.release(used.head, parts.len() as u16);
                    self.queue.silence();
                    return Ok(Ok(if self.memory.read::<u8>(ANSWER) == OK {
                        Answer::Done
                    } else {
                        Answer::Refused
                    }));
                }
                Ok(None) if start.elapsed() > PATIENCE => return Err(late()),
                Ok(None) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}
