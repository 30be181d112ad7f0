//! Devices that are open: each once in a process, however often programs open it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uvia::{AdapterMemory, Listener, NicOptions, Progress, Request};

use crate::config::Config;

/// How long opening waits for a link to come up; where it stays down, connecting says so.
const LINK: Duration = Duration::from_secs(5);

/// A device, shared by those who opened it.
pub(crate) struct Device {
    pub(crate) nic: uvia::Nic,
    name: String,
    /// Discriminators that threads wait at.
    doors: Mutex<HashMap<Vec<u8>, Door>>,
}

/// A listener, and for how many threads.
struct Door {
    listener: Arc<Listener>,
    waiting: usize,
}

/// A thread's wait at a discriminator.
pub(crate) struct Waiting<'a> {
    device: &'a Device,
    discriminator: &'a [u8],
    listener: Option<Arc<Listener>>,
}

/// The lock's content, whether or not a thread has panicked while it held it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Opens the device that a program means by `name`.
    ///
    /// # Errors
    /// What keeps it from being opened.
    pub(crate) fn open(name: &str) -> uvia::Result<Arc<Self>> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
        let config = Config::system();
        let name = config.device(name);
        let mut open = lock(&OPEN);
        open.retain(|device| device.strong_count() != 0);
        if let Some(device) = open.iter().filter_map(Weak::upgrade).find(|device| device.name == name) {
            return Ok(device);
        }
        let options = NicOptions {
            name: std::env::var("UVIA_NAME").ok().or_else(|| config.name.clone()),
            hosts: config.hosts_file.clone(),
            progress: Progress::Thread,
            adapter_memory: adapter_memory(),
            ..NicOptions::default()
        };
        let nic = uvia::Nic::open(&name, options)?;
        if let Err(e) = nic.wait_ready(LINK) {
            eprintln!("vipl: {e}");
        }
        let device = Arc::new(Self { nic, name, doors: Mutex::default() });
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Whether a thread of this process waits at that discriminator.
    pub(crate) fn is_waited_at(&self, discriminator: &[u8]) -> bool {
        lock(&self.doors).contains_key(discriminator)
    }

    /// Begins to wait for requests at a discriminator; several threads may.
    ///
    /// # Errors
    /// Too many discriminators are waited at, or it is too long.
    pub(crate) fn wait_at<'a>(&'a self, discriminator: &'a [u8]) -> uvia::Result<Waiting<'a>> {
        let mut doors = lock(&self.doors);
        let listener = match doors.get_mut(discriminator) {
            Some(door) => {
                door.waiting += 1;
                door.listener.clone()
            }
            None => {
                // One at a time: who comes second asks again, and is heard by the next who waits.
                let listener = Arc::new(self.nic.listen(discriminator, 1)?);
                doors.insert(discriminator.to_vec(), Door { listener: listener.clone(), waiting: 1 });
                listener
            }
        };
        Ok(Waiting { device: self, discriminator, listener: Some(listener) })
    }
}

/// The adapter memory that `UVIA_ADAPTER_MEMORY` names. Without it, or where it cannot be used, which is said, there are
/// no interfaces of that class.
fn adapter_memory() -> Option<Arc<AdapterMemory>> {
    let name = std::env::var("UVIA_ADAPTER_MEMORY").ok().filter(|name| !name.is_empty())?;
    AdapterMemory::open(&name).inspect_err(|e| eprintln!("vipl: {e}")).ok()
}

impl Waiting<'_> {
    /// The next request, if there is one.
    pub(crate) fn poll(&self) -> uvia::Result<Option<Request>> {
        self.listener.as_ref().map_or(Ok(None), |listener| listener.poll())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut doors = lock(&self.device.doors);
        // The last who waits closes the door.
        let last = doors.get_mut(self.discriminator).is_some_and(|door| {
            door.waiting -= 1;
            door.waiting == 0
        });
        if last {
            doors.remove(self.discriminator);
        }
        if let Some(listener) = self.listener.take().and_then(Arc::into_inner) {
            listener.leave();
        }
    }
}
