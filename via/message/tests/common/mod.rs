//! Sessions whose ranks are threads of one process.

#![allow(dead_code, missing_docs, reason = "each test uses a part of it")]

pub mod program;
pub mod suite;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use uvia::{Nic, NicOptions};
use uvia_driver::pio::AdapterMemory;
use uvia_message::{Board, Directory, Policy, RailPort, Session, SessionOptions};

/// Far beyond what anything needs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a rail of a test is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Vi,
    /// The same, of NICs with adapter memory.
    Pio,
    Tcp,
    Shared,
    /// Virtual interfaces of the two adapters of a guest: even ranks have one, odd ranks the other.
    Device,
}

static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// A name that no other session has.
pub fn fresh_name() -> String {
    format!("test-{}-{}", std::process::id(), SESSIONS.fetch_add(1, Ordering::Relaxed))
}

/// A NIC of its own on shared memory.
pub fn nic(device: &str, name: &str) -> Nic {
    open(device, NicOptions { name: Some(name.to_owned()), ..NicOptions::default() })
}

/// As [`nic`], with memory that stands for an adapter's, which all of this process share.
pub fn nic_with_adapter_memory(device: &str, name: &str) -> Nic {
    static MEMORY: OnceLock<Arc<AdapterMemory>> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| {
        let fd =
            memfd_create("adapter-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
        ftruncate(&fd, 1 << 20).expect("there is memory");
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .expect("it can be sealed");
        AdapterMemory::of_file("memfd", fd).expect("it is adapter memory")
    });
    let adapter_memory = Some(memory.clone());
    open(device, NicOptions { name: Some(name.to_owned()), adapter_memory, ..NicOptions::default() })
}

fn open(device: &str, options: NicOptions) -> Nic {
    let (adapter, domain) =
        uvia_driver::nic::open_named(device, &options.adapter).expect("shared memory opens");
    Nic::with_adapter(adapter, domain, options).expect("a NIC opens")
}

/// An adapter of the guest, opened once.
pub fn device(rank: usize) -> Nic {
    static NICS: [OnceLock<Nic>; 2] = [const { OnceLock::new() }; 2];
    let (variable, name) = [("UVIA_NIC_A", "a"), ("UVIA_NIC_B", "b")][rank % 2];
    let open = || {
        let device = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} names no device"));
        let options = NicOptions { name: Some(name.to_owned()), ..NicOptions::default() };
        let nic = Nic::open(&device, options).unwrap_or_else(|e| panic!("{e}"));
        nic.wait_ready(PATIENCE).unwrap_or_else(|e| panic!("{e}"));
        nic
    };
    NICS[rank % 2].get_or_init(open).clone()
}

/// A rank's end of a rail.
pub fn rail(kind: Kind, session: &str, number: usize, rank: usize) -> RailPort {
    match kind {
        Kind::Vi => RailPort::Vi(nic(&format!("shm:{session}-{number}"), &format!("{session}.{rank}"))),
        Kind::Pio => {
            let (device, name) = (format!("shm:{session}-{number}"), format!("{session}.{rank}"));
            RailPort::Vi(nic_with_adapter_memory(&device, &name))
        }
        Kind::Tcp => RailPort::Tcp("127.0.0.1:0".parse().expect("an address")),
        Kind::Shared => RailPort::Shared,
        Kind::Device => RailPort::Vi(device(rank)),
    }
}

/// Runs `program` as each of `size` ranks, on those rails. `has` says whether a rank has a rail.
pub fn run_mixed(
    size: usize,
    rails: &[Kind],
    has: impl Fn(usize, usize) -> bool + Sync,
    change: impl Fn(&mut SessionOptions) + Sync,
    program: impl Fn(Session) + Sync,
) {
    let name = fresh_name();
    let board = Board::default();
    let (has, change, program, board, name) = (&has, &change, &program, &board, &name);
    std::thread::scope(|scope| {
        for rank in 0..size {
            scope.spawn(move || {
                let mut options = SessionOptions::new(name, rank, size);
                options.patience = Some(PATIENCE);
                options.policy = Policy::Adaptive;
                change(&mut options);
                let rails = rails
                    .iter()
                    .enumerate()
                    .map(|(n, kind)| {
                        let port = if has(rank, n) { rail(*kind, name, n, rank) } else { RailPort::Absent };
                        (format!("rail{n}"), port)
                    })
                    .collect();
                let session =
                    Session::open(options, rails, &Directory::Local(board.clone())).expect("it opens");
                program(session);
            });
        }
    });
}

/// Runs `program` as each of `size` ranks, on those rails.
pub fn run(
    size: usize,
    rails: &[Kind],
    change: impl Fn(&mut SessionOptions) + Sync,
    program: impl Fn(Session) + Sync,
) {
    run_mixed(size, rails, |_, _| true, change, program);
}
