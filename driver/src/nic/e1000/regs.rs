//! Registers and their bits, by the names of Intel's "PCI/PCI-X Family of Gigabit Ethernet Controllers Software
//! Developer's Manual" (8254x), chapter 13.

use bitflags::bitflags;

/// Device control (13.4.1).
pub const CTRL: usize = 0x0000;
/// Device status (13.4.2).
pub const STATUS: usize = 0x0008;
/// EEPROM read (13.4.4).
pub const EERD: usize = 0x0014;
/// Interrupt cause, cleared by reading (13.4.17).
pub const ICR: usize = 0x00c0;
/// Interrupt throttling (13.4.18).
pub const ITR: usize = 0x00c4;
/// Interrupt mask: what is written as 1 is enabled (13.4.20).
pub const IMS: usize = 0x00d0;
/// Interrupt mask: what is written as 1 is disabled (13.4.21).
pub const IMC: usize = 0x00d8;
/// Receive control (13.4.22).
pub const RCTL: usize = 0x0100;
/// Transmit control (13.4.33).
pub const TCTL: usize = 0x0400;
/// Transmit inter-packet gap (13.4.34).
pub const TIPG: usize = 0x0410;
/// Packet buffer allocation (13.4.16).
pub const PBA: usize = 0x1000;
/// Receive descriptor base, low half (13.4.25).
pub const RDBAL: usize = 0x2800;
/// Receive descriptor base, high half (13.4.26).
pub const RDBAH: usize = 0x2804;
/// Receive descriptor bytes, a multiple of 128 (13.4.27).
pub const RDLEN: usize = 0x2808;
/// Receive descriptor head (13.4.28).
pub const RDH: usize = 0x2810;
/// Receive descriptor tail: one beyond the last that the device may use (13.4.29).
pub const RDT: usize = 0x2818;
/// Receive interrupt delay (13.4.30).
pub const RDTR: usize = 0x2820;
/// Receive interrupt absolute delay (13.4.31).
pub const RADV: usize = 0x282c;
/// Transmit descriptor base, low half (13.4.36).
pub const TDBAL: usize = 0x3800;
/// Transmit descriptor base, high half (13.4.37).
pub const TDBAH: usize = 0x3804;
/// Transmit descriptor bytes, a multiple of 128 (13.4.38).
pub const TDLEN: usize = 0x3808;
/// Transmit descriptor head (13.4.39).
pub const TDH: usize = 0x3810;
/// Transmit descriptor tail: one beyond the last to send (13.4.40).
pub const TDT: usize = 0x3818;
/// CRC errors, cleared by reading (13.7.1).
pub const CRCERRS: usize = 0x4000;
/// Receive errors, cleared by reading (13.7.4).
pub const RXERRC: usize = 0x400c;
/// Missed packets: no room in the receive FIFO; cleared by reading (13.7.5).
pub const MPC: usize = 0x4010;
/// Frames longer than 1522 bytes, or 16384 with [`Rctl::LPE`], check sequence included; cleared by reading (13.7.36).
pub const ROC: usize = 0x40ac;
/// Multicast table, 128 words (13.5.1).
pub const MTA: usize = 0x5200;
/// Words in the multicast table.
pub const MTA_WORDS: usize = 128;
/// Receive address 0, low half (13.5.2).
pub const RAL: usize = 0x5400;
/// Receive address 0, high half (13.5.3).
pub const RAH: usize = 0x5404;
/// What BAR 0 has at least for all of these to lie in it.
pub const LENGTH: usize = 0x6000;

/// A register that the device cannot be reached for.
pub const ALL_ONES: u32 = u32::MAX;
/// All interrupt causes.
pub const ALL_CAUSES: u32 = u32::MAX;

bitflags! {
    /// Bits of [`CTRL`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Ctrl: u32 {
        /// Full duplex.
        const FD = 1 << 0;
        /// Link reset; 0 for normal operation.
        const LRST = 1 << 3;
        /// Automatic speed detection.
        const ASDE = 1 << 5;
        /// Set link up.
        const SLU = 1 << 6;
        /// Invert loss of signal; 0 for the internal PHY.
        const ILOS = 1 << 7;
        /// Force speed.
        const FRCSPD = 1 << 11;
        /// Force duplex.
        const FRCDPLX = 1 << 12;
        /// Device reset; clears itself.
        const RST = 1 << 26;
        /// VLAN tags are taken out; 0 here.
        const VME = 1 << 30;
        /// PHY reset; not used.
        const PHY_RST = 1 << 31;
        const _ = !0;
    }

    /// Bits of [`STATUS`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u32 {
        /// Full duplex.
        const FD = 1 << 0;
        /// Link up.
        const LU = 1 << 1;
        /// Speed: 100 Mb/s.
        const SPEED_100 = 1 << 6;
        /// Speed: 1000 Mb/s, whatever the bit below it says.
        const SPEED_1000 = 1 << 7;
        const _ = !0;
    }

    /// Interrupt causes: bits of [`ICR`], [`IMS`], [`IMC`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Cause: u32 {
        /// Link status change.
        const LSC = 1 << 2;
        /// Receive descriptors are getting few.
        const RXDMT0 = 1 << 4;
        /// Receiver overrun.
        const RXO = 1 << 6;
        /// Receiver timer: a frame was received.
        const RXT0 = 1 << 7;
        const _ = !0;
    }

    /// Bits of [`RCTL`]. Buffers are of 2048 bytes when BSIZE (bits 17:16) and BSEX are 0.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rctl: u32 {
        /// Receiver enable.
        const EN = 1 << 1;
        /// Unicast promiscuous.
        const UPE = 1 << 3;
        /// Multicast promiscuous.
        const MPE = 1 << 4;
        /// Long packets are received: those of more than 1522 bytes with check sequence.
        const LPE = 1 << 5;
        /// Broadcast accept.
        const BAM = 1 << 15;
        /// BSIZE for buffers of 8192 bytes, with BSEX.
        const BSIZE_8192 = 2 << 16;
        /// BSIZE for buffers of 4096 bytes, with BSEX.
        const BSIZE_4096 = 3 << 16;
        /// BSIZE is of sizes sixteen times as large.
        const BSEX = 1 << 25;
        /// Strip the Ethernet check sequence.
        const SECRC = 1 << 26;
    }

    /// Bits of [`TCTL`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Tctl: u32 {
        /// Transmitter enable.
        const EN = 1 << 1;
        /// Pad short packets.
        const PSP = 1 << 3;
        /// Collision threshold (bits 11:4): 15, as recommended.
        const CT = 0x0f << 4;
        /// Collision distance (bits 21:12): 64 byte times, as recommended for full duplex.
        const COLD = 0x40 << 12;
    }

    /// Bits of [`EERD`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Eerd: u32 {
        /// Start a read; the word's address is in bits 15:8, its data come in bits 31:16.
        const START = 1 << 0;
        /// The read is done.
        const DONE = 1 << 4;
        const _ = !0;
    }
}

/// [`PBA`] as at power-on: 48 KiB of 64 for the receiver, 16 KiB for the transmitter, in which a frame has to fit whole.
pub const PBA_DEFAULT: u32 = 48;
/// The receive address in [`RAH`] is valid.
pub const RAH_AV: u32 = 1 << 31;
/// [`TIPG`] for copper (13.4.34): IPGT 10, IPGR1 8, IPGR2 6.
pub const TIPG_COPPER: u32 = 10 | 8 << 10 | 6 << 20;
