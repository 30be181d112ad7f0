//! Statistics registers (8254x manual, 13.7): they stop at all-ones, and reading clears them.

use super::regs;

/// Bytes of the check sequence, which the chip counts.
const FCS: u64 = 4;

/// The registers.
#[derive(Debug)]
pub struct Statistics {
    counters: [u32; (regs::STATISTICS_END - regs::STATISTICS) / 4],
}

impl Statistics {
    /// All 0.
    pub fn new() -> Self {
        Self { counters: [0; (regs::STATISTICS_END - regs::STATISTICS) / 4] }
    }

    fn counter(&mut self, register: usize) -> &mut u32 {
        let count = self.counters.len();
        &mut self.counters[(register - regs::STATISTICS) / 4 % count]
    }

    /// Reads a register, and clears it. A 64-bit counter (low half, then high half) goes when its high half is
    /// read.
    pub fn take(&mut self, register: usize) -> u32 {
        match register {
            regs::GORCL | regs::GOTCL | regs::TORL | regs::TOTL => *self.counter(register),
            _ if [regs::GORCL, regs::GOTCL, regs::TORL, regs::TOTL].contains(&(register - 4)) => {
                *self.counter(register - 4) = 0;
                std::mem::take(self.counter(register))
            }
            _ => std::mem::take(self.counter(register)),
        }
    }

    /// Adds to a counter.
    pub fn add(&mut self, register: usize, count: u64) {
        let counter = self.counter(register);
        *counter = counter.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn add_wide(&mut self, register: usize, count: u64) {
        let value = u64::from(*self.counter(register)) | u64::from(*self.counter(register + 4)) << 32;
        let value = value.saturating_add(count);
        *self.counter(register) = value as u32;
        *self.counter(register + 4) = (value >> 32) as u32;
    }

    /// A frame was received, by filters or not.
    pub fn arrived(&mut self, len: usize) {
        self.add(regs::TPR, 1);
        self.add_wide(regs::TORL, len as u64 + FCS);
    }

    /// A frame passed the filters and was stored.
    pub fn received(&mut self, frame: &[u8]) {
        self.by_size(regs::PRC64, frame.len());
        self.add(regs::GPRC, 1);
        self.add_wide(regs::GORCL, frame.len() as u64 + FCS);
        self.by_kind(regs::BPRC, regs::MPRC, frame);
    }

    /// A frame was sent.
    pub fn sent(&mut self, frame: &[u8]) {
        self.by_size(regs::PTC64, frame.len());
        self.add(regs::TPT, 1);
        self.add(regs::GPTC, 1);
        self.add_wide(regs::TOTL, frame.len() as u64 + FCS);
        self.add_wide(regs::GOTCL, frame.len() as u64 + FCS);
        self.by_kind(regs::BPTC, regs::MPTC, frame);
    }

    fn by_kind(&mut self, broadcast: usize, multicast: usize, frame: &[u8]) {
        if frame.starts_with(&[0xff; 6]) {
            self.add(broadcast, 1);
        } else if frame.first().is_some_and(|byte| byte & 1 != 0) {
            self.add(multicast, 1);
        }
    }

    /// 64 bytes, to 127, to 255, to 511, to 1023, more: with check sequence.
    fn by_size(&mut self, first: usize, len: usize) {
        let bucket = match len + FCS as usize {
            ..=64 => 0,
            65..=127 => 1,
            128..=255 => 2,
            256..=511 => 3,
            512..=1023 => 4,
            _ => 5,
        };
        self.add(first + 4 * bucket, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_size_and_kind_and_clears() {
        let mut statistics = Statistics::new();
        for len in [60, 61, 1514] {
            statistics.received(&vec![0xff; len]);
            statistics.sent(&vec![1; len]);
        }
        let octets = 60 + 61 + 1514 + 12;
        for (register, value) in [
            (regs::GPRC, 3),
            (regs::GPRC, 0),
            (regs::BPRC, 3),
            (regs::MPRC, 0),
            (regs::MPTC, 3),
            (regs::PRC64, 1),
            (regs::PRC64 + 4, 1),
            (regs::PRC64 + 20, 1),
            (regs::GORCL, octets),
            (regs::GORCL, octets),
            (regs::GORCL + 4, 0),
            (regs::GORCL, 0),
        ] {
            assert_eq!(statistics.take(register), value, "{register:#x}");
        }
        statistics.add(regs::MPC, u64::MAX);
        statistics.add(regs::MPC, 1);
        assert_eq!(statistics.take(regs::MPC), u32::MAX);
    }
}
