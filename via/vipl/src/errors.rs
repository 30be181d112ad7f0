//! Errors that no descriptor can carry, and the threads that programs hear of them on.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

use uvia::{AsyncError, ErrorResource};

use crate::device::lock;
use crate::nic::NICS;
use crate::types::{ErrorDescriptor, ErrorHandler, Handle};
use crate::vi;

/// A descriptor cannot even complete; the architecture's code, and that of the resource.
const POST_DESCRIPTOR: u32 = 0;
const DESCRIPTOR: u32 = 3;
const VI: u32 = 1;
const NIC: u32 = 0;

/// Where a program wants to hear of errors.
#[derive(Default)]
pub(crate) struct Callback(Mutex<Option<(usize, ErrorHandler)>>);

impl Callback {
    /// Sets it; none is the default, which says what happened on standard error.
    pub(crate) fn set(&self, handler: Option<(usize, ErrorHandler)>) {
        *lock(&self.0) = handler;
    }

    /// Calls it, with no lock held.
    fn call(&self, mut error: ErrorDescriptor) {
        let handler = *lock(&self.0);
        match handler {
            // SAFETY: the program gave this function for such calls; the descriptor lives for the call.
            Some((context, handler)) => unsafe {
                handler(std::ptr::with_exposed_provenance_mut(context), &mut error);
            },
            None => {
                let (name, what) = name(error.error_code);
                eprintln!(
                    "vipl: asynchronous error {} ({name}: {what}) on NIC {:p}, VI {:p}, descriptor {:p}; \
                     a program that sets VipErrorCallback hears of it instead",
                    error.error_code, error.nic, error.vi, error.descriptor
                );
            }
        }
    }
}

/// What `vipl.h` calls an error, and what it means.
fn name(code: u32) -> (&'static str, &'static str) {
    match code {
        0 => ("VIP_ERROR_POST_DESC", "a posted descriptor cannot be read"),
        1 => ("VIP_ERROR_CONN_LOST", "the connection was lost, or the other end has left it"),
        2 => ("VIP_ERROR_RECVQ_EMPTY", "a message came and no receive was posted"),
        3 => ("VIP_ERROR_VI_OVERRUN", "a completion queue was overrun"),
        4 => ("VIP_ERROR_RDMAW_PROT", "an RDMA write of the peer's was refused"),
        5 => ("VIP_ERROR_RDMAW_DATA", "an RDMA write of the peer's was damaged"),
        6 => ("VIP_ERROR_RDMAW_ABORT", "an RDMA write of the peer's ended in its middle"),
        7 => ("VIP_ERROR_RDMAR_PROT", "an RDMA read of the peer's was refused"),
        8 => ("VIP_ERROR_COMP_PROT", "a completion could not be written"),
        9 => (
            "VIP_ERROR_RDMA_TRANSPORT",
            "the connection was lost in the middle of an RDMA read of the peer's",
        ),
        10 => ("VIP_ERROR_CATASTROPHIC", "the adapter has failed"),
        _ => ("unknown", "a code that vipl.h does not have"),
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs a call into the program on a thread of its own: whoever noticed that it is due may hold locks, and the program
/// may call any function in it. One after the other, in order.
pub(crate) fn call_later(job: Job) {
    static CALLS: OnceLock<Option<Mutex<Sender<Job>>>> = OnceLock::new();
    let sender = CALLS.get_or_init(|| {
        let (sender, calls) = channel::<Job>();
        let thread = std::thread::Builder::new().name("vipl-calls".to_owned()).spawn(move || {
            for job in calls {
                job();
            }
        });
        match thread {
            Ok(_) => Some(Mutex::new(sender)),
            Err(e) => {
                eprintln!("vipl: no thread for the program's handlers: {e}");
                None
            }
        }
    });
    if let Some(sender) = sender {
        // It ends with the process only.
        let _ = lock(sender).send(job);
    }
}

/// Tells the program of a descriptor that cannot even complete.
pub(crate) fn bad_descriptor(nic: usize, vi: Handle, descriptor: *mut crate::types::Descriptor) {
    let (vi, descriptor) = (vi.addr(), descriptor.expose_provenance());
    call_later(Box::new(move || {
        let handle = std::ptr::without_provenance_mut;
        tell(ErrorDescriptor {
            nic: handle(nic),
            vi: handle(vi),
            cq: std::ptr::null_mut(),
            descriptor: std::ptr::with_exposed_provenance_mut(descriptor),
            op_code: 0,
            resource_code: DESCRIPTOR,
            error_code: POST_DESCRIPTOR,
        });
    }));
}

/// Tells the program of what uvia has met, on uvia's thread for that.
pub(crate) fn happened(nic: usize, error: &AsyncError) {
    let vi = match error.resource {
        ErrorResource::Vi(id) => {
            vi::all(|vi| vi.nic.handle == nic && vi.vi.id() == id).pop().map(|vi| vi.handle())
        }
        _ => None,
    };
    tell(ErrorDescriptor {
        nic: std::ptr::without_provenance_mut(nic),
        vi: vi.unwrap_or(std::ptr::null_mut()),
        cq: std::ptr::null_mut(),
        descriptor: std::ptr::null_mut(),
        op_code: 0,
        resource_code: if matches!(error.resource, ErrorResource::Vi(_)) { VI } else { NIC },
        // The numbers are the architecture's.
        error_code: error.code as u32,
    });
}

fn tell(error: ErrorDescriptor) {
    if let Some(nic) = NICS.get(error.nic) {
        nic.errors.call(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_called_what_the_header_calls_them() {
        let header = include_str!("../include/vipl.h");
        let codes = header.split_once("_VIP_ERROR_CODE {").unwrap().1.split_once('}').unwrap().0;
        assert_eq!(codes.split(',').count(), 11);
        for code in codes.split(',') {
            let (called, number) = code.split_once('=').unwrap();
            assert_eq!(name(number.trim().parse().unwrap()).0, called.trim());
        }
        assert_eq!(name(11).0, "unknown");
    }
}
