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
            None => eprintln!(
                "vipl: asynchronous error {} on resource {} (NIC {:p}, VI {:p}, descriptor {:p})",
                error.error_code, error.resource_code, error.nic, error.vi, error.descriptor
            ),
        }
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
