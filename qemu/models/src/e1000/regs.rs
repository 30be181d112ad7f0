//! Registers and their bits, by the names of Intel's "PCI/PCI-X Family of Gigabit Ethernet Controllers Software
//! Developer's Manual" (8254x), chapter 13. Only those that do more than remember what was written.

#![allow(missing_docs, reason = "the names are the manual's")]

/// Bytes of BAR 0.
pub const LENGTH: u32 = 0x2_0000;
/// Registers beyond this are packet buffer and diagnostics: they read 0.
pub const REMEMBERED: usize = 0x8000;

pub const CTRL: usize = 0x0000;
pub const CTRL_DUP: usize = 0x0004;
pub const STATUS: usize = 0x0008;
pub const EECD: usize = 0x0010;
pub const EERD: usize = 0x0014;
pub const CTRL_EXT: usize = 0x0018;
pub const MDIC: usize = 0x0020;
pub const VET: usize = 0x0038;
pub const ICR: usize = 0x00c0;
pub const ITR: usize = 0x00c4;
pub const ICS: usize = 0x00c8;
pub const IMS: usize = 0x00d0;
pub const IMC: usize = 0x00d8;
pub const RCTL: usize = 0x0100;
pub const TCTL: usize = 0x0400;
pub const LEDCTL: usize = 0x0e00;
pub const PBA: usize = 0x1000;

/// The pages with the rings' registers, receive and transmit: they may be mapped by clients.
pub const RINGS: usize = 0x2000;
pub const RINGS_END: usize = 0x4000;
pub const RDBAL: usize = 0x2800;
pub const RDLEN: usize = 0x2808;
pub const RDH: usize = 0x2810;
pub const RDT: usize = 0x2818;
pub const TDBAL: usize = 0x3800;
pub const TDH: usize = 0x3810;

/// Statistics (13.7): cleared by reading.
pub const STATISTICS: usize = 0x4000;
pub const STATISTICS_END: usize = 0x4100;
pub const MPC: usize = 0x4010;
pub const PRC64: usize = 0x405c;
pub const GPRC: usize = 0x4074;
pub const BPRC: usize = 0x4078;
pub const MPRC: usize = 0x407c;
pub const GPTC: usize = 0x4080;
pub const GORCL: usize = 0x4088;
pub const GOTCL: usize = 0x4090;
pub const ROC: usize = 0x40ac;
pub const TORL: usize = 0x40c0;
pub const TOTL: usize = 0x40c8;
pub const TPR: usize = 0x40d0;
pub const TPT: usize = 0x40d4;
pub const PTC64: usize = 0x40d8;
pub const MPTC: usize = 0x40f0;
pub const BPTC: usize = 0x40f4;
pub const TSCTC: usize = 0x40f8;

pub const MTA: usize = 0x5200;
pub const RAL: usize = 0x5400;
pub const RAH: usize = 0x5404;
pub const VFTA: usize = 0x5600;

bitflags::bitflags! {
    /// CTRL (13.4.1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Ctrl: u32 {
        const FD = 1 << 0;
        const SLU = 1 << 6;
        const SPEED_1000 = 1 << 9;
        const RST = 1 << 26;
        const VME = 1 << 30;
        const PHY_RST = 1 << 31;
        const _ = !0;
    }

    /// STATUS (13.4.2).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Status: u32 {
        const FD = 1 << 0;
        const LU = 1 << 1;
        const SPEED_1000 = 1 << 7;
        const PCI66 = 1 << 11;
    }

    /// Interrupt causes (13.4.17).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Cause: u32 {
        const TXDW = 1 << 0;
        const TXQE = 1 << 1;
        const LSC = 1 << 2;
        const RXDMT0 = 1 << 4;
        const RXO = 1 << 6;
        const RXT0 = 1 << 7;
        const MDAC = 1 << 9;
        const ALL = 0x1_ffff;
        const _ = !0;
    }

    /// RCTL (13.4.22).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Rctl: u32 {
        const EN = 1 << 1;
        const UPE = 1 << 3;
        const MPE = 1 << 4;
        const LPE = 1 << 5;
        const BAM = 1 << 15;
        const VFE = 1 << 18;
        const BSEX = 1 << 25;
        const SECRC = 1 << 26;
        const _ = !0;
    }

    /// TCTL (13.4.33).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Tctl: u32 {
        const EN = 1 << 1;
        const PSP = 1 << 3;
        const _ = !0;
    }
}

/// RAH: the address is valid.
pub const RAH_AV: u32 = 1 << 31;
/// RAH: which address is compared; 0 is the destination.
pub const RAH_ASEL: u32 = 3 << 16;
/// CTRL_EXT: load the EEPROM anew.
pub const CTRL_EXT_EE_RST: u32 = 1 << 13;
