//! The structures and values of `vipl.h`, byte for byte. Names are those of the C side, where they are documented.
#![allow(missing_docs)] // `vipl.h` and the manual pages have the documentation: a second one would only drift away.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::{align_of, offset_of, size_of};

/// A handle as programs hold it.
pub type Handle = *mut c_void;

bitflags::bitflags! {
    /// Bits of a control segment's `Control`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Control: u16 {
        const RDMA_WRITE = 1;
        const RDMA_READ = 2;
        const OPERATION = 3;
        const IMMEDIATE = 4;
        const FENCE = 8;
        const RESERVED = 0xfff0;
    }
}

/// What functions return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Return {
    Success = 0,
    NotDone = 1,
    InvalidParameter = 2,
    ErrorResource = 3,
    Timeout = 4,
    Reject = 5,
    InvalidReliabilityLevel = 6,
    InvalidMtu = 7,
    InvalidQos = 8,
    InvalidPtag = 9,
    InvalidRdmaRead = 10,
    DescriptorError = 11,
    InvalidState = 12,
    ErrorNameService = 13,
    NoMatch = 14,
    NotReachable = 15,
    NotSupported = 16,
}

pub const UNRELIABLE: u16 = 1;
pub const RELIABLE_DELIVERY: u16 = 2;
pub const RELIABLE_RECEPTION: u16 = 4;

/// Status bits that say which operation a descriptor was.
pub const OP_RECEIVE: u32 = 0x10000;
pub const OP_RDMA_WRITE: u32 = 0x20000;
pub const OP_REMOTE_RDMA_WRITE: u32 = 0x30000;
pub const OP_RDMA_READ: u32 = 0x40000;
pub const STATUS_IMMEDIATE: u32 = 0x80000;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct NetAddress {
    pub host_address_len: u16,
    pub discriminator_len: u16,
    pub host_address: [u8; 1],
}

#[repr(C)]
pub struct PioAttributes {
    pub windows: c_ulong,
    pub windows_left: c_ulong,
    pub credits: c_ulong,
    pub max_transfer_size: c_ulong,
    pub store_width: c_ulong,
    pub alignment: c_ulong,
    pub missing: c_ulong,
}

const _: () = assert!(size_of::<PioAttributes>() == 56);

#[repr(C)]
pub struct NicAttributes {
    pub name: [c_char; 64],
    pub hardware_version: c_ulong,
    pub provider_version: c_ulong,
    pub nic_address_len: u16,
    pub local_nic_address: *const u8,
    pub thread_safe: c_int,
    pub max_discriminator_len: u16,
    pub max_register_bytes: c_ulong,
    pub max_register_regions: c_ulong,
    pub max_register_block_bytes: c_ulong,
    pub max_vi: c_ulong,
    pub max_descriptors_per_queue: c_ulong,
    pub max_segments_per_desc: c_ulong,
    pub max_cq: c_ulong,
    pub max_cq_entries: c_ulong,
    pub max_transfer_size: c_ulong,
    pub native_mtu: c_ulong,
    pub max_ptags: c_ulong,
    pub reliability_level_support: u16,
    pub rdma_read_support: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ViAttributes {
    pub reliability_level: u16,
    pub max_transfer_size: c_ulong,
    pub qos: Handle,
    pub ptag: Handle,
    pub enable_rdma_write: c_int,
    pub enable_rdma_read: c_int,
}

// SAFETY: handles in it are names, and are never followed.
unsafe impl Send for ViAttributes {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct MemAttributes {
    pub ptag: Handle,
    pub enable_rdma_write: c_int,
    pub enable_rdma_read: c_int,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ControlSegment {
    pub next: u64,
    pub next_handle: u32,
    pub seg_count: u16,
    pub control: u16,
    pub reserved: u32,
    pub immediate_data: u32,
    pub length: u32,
    pub status: u32,
}

/// A data segment; an address segment is the same but for the length, which is reserved there.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct DataSegment {
    pub data: u64,
    pub handle: u32,
    pub length: u32,
}

#[repr(C, align(64))]
pub struct Descriptor {
    pub control: ControlSegment,
    pub data: [DataSegment; 2],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ErrorDescriptor {
    pub nic: Handle,
    pub vi: Handle,
    pub cq: Handle,
    pub descriptor: *mut Descriptor,
    pub op_code: c_ulong,
    pub resource_code: c_uint,
    pub error_code: c_uint,
}

#[repr(C)]
pub struct AutodiscoveryList {
    pub number_of_hops: c_ulong,
    pub addresses: *mut *mut NetAddress,
    pub num_addresses: c_ulong,
}

/// Called by [`crate::abi::VipErrorCallback`]'s errors.
pub type ErrorHandler = unsafe extern "C" fn(*mut c_void, *mut ErrorDescriptor);
/// Called for a descriptor that completed.
pub type DescriptorHandler = unsafe extern "C" fn(*mut c_void, Handle, Handle, *mut Descriptor);
/// Called for an entry of a completion queue.
pub type CqHandler = unsafe extern "C" fn(*mut c_void, Handle, Handle, c_int);

const _: () = {
    assert!(size_of::<NetAddress>() == 6 && offset_of!(NetAddress, host_address) == 4);
    assert!(size_of::<NicAttributes>() == 200);
    assert!(offset_of!(NicAttributes, nic_address_len) == 80);
    assert!(offset_of!(NicAttributes, local_nic_address) == 88);
    assert!(offset_of!(NicAttributes, thread_safe) == 96);
    assert!(offset_of!(NicAttributes, max_discriminator_len) == 100);
    assert!(offset_of!(NicAttributes, max_register_bytes) == 104);
    assert!(offset_of!(NicAttributes, max_transfer_size) == 168);
    assert!(offset_of!(NicAttributes, max_ptags) == 184);
    assert!(offset_of!(NicAttributes, reliability_level_support) == 192);
    assert!(offset_of!(NicAttributes, rdma_read_support) == 194);
    assert!(size_of::<ViAttributes>() == 40 && offset_of!(ViAttributes, max_transfer_size) == 8);
    assert!(offset_of!(ViAttributes, qos) == 16 && offset_of!(ViAttributes, ptag) == 24);
    assert!(offset_of!(ViAttributes, enable_rdma_write) == 32);
    assert!(offset_of!(ViAttributes, enable_rdma_read) == 36);
    assert!(size_of::<MemAttributes>() == 16 && offset_of!(MemAttributes, enable_rdma_read) == 12);
    assert!(size_of::<ControlSegment>() == 32 && offset_of!(ControlSegment, control) == 14);
    assert!(offset_of!(ControlSegment, immediate_data) == 20 && offset_of!(ControlSegment, status) == 28);
    assert!(size_of::<DataSegment>() == 16 && offset_of!(DataSegment, length) == 12);
    assert!(size_of::<Descriptor>() == 64 && align_of::<Descriptor>() == 64);
    assert!(size_of::<ErrorDescriptor>() == 48 && offset_of!(ErrorDescriptor, error_code) == 44);
    assert!(offset_of!(ErrorDescriptor, descriptor) == 24 && offset_of!(ErrorDescriptor, op_code) == 32);
    assert!(size_of::<AutodiscoveryList>() == 24);
    assert!(size_of::<Return>() == size_of::<c_int>());
};
