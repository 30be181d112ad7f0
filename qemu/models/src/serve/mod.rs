//! A machine's adapters, served to other processes.

mod device;
mod worker;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Served, describe};
use uvia_vfio_user::server::{Activity, Server, ServerOptions};
pub use worker::{Doorbells, Worker};

use crate::machine::{Machine, Nic};

/// How long a thread waits for messages before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// One adapter at its socket.
pub struct Service {
    server: Server,
    device: Served,
}

impl Service {
    /// Listens at `path` for the clients of an adapter, which come one after the other.
    ///
    /// # Errors
    /// Somebody serves there already, or the socket cannot be made.
    pub fn bind(
        path: &Path,
        machine: &Arc<Machine>,
        nic: &Arc<Nic>,
        worker: &Worker,
    ) -> uvia_vfio_user::Result<Self> {
        let description = nic.with(|function| describe(function, worker.doorbells()));
        let server = Server::bind(path, description, ServerOptions::default())?;
        let (dma, interrupts) = (server.dma(), server.interrupts());
        let device = Served::new(machine.clone(), nic.clone(), worker.handle(), dma, interrupts);
        Ok(Self { server, device })
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// The system fails; what clients do is no error.
    pub fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match self.server.poll(&mut self.device, PATIENCE).map_err(io::Error::other)? {
                Activity::Handled(_) => self.device.handled(),
                Activity::Disconnected(why) => {
                    tracing::info!(nic = self.device.name(), "the client is gone: {why}");
                }
                Activity::Connected | Activity::Idle | Activity::Finished => (),
            }
        }
        self.server.disconnect(&mut self.device);
        Ok(())
    }
}
