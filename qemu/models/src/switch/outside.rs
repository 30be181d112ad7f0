//! Frames between a port of the switch and something that blocks: a TAP, another process.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use super::SwitchPort;
use crate::port::{Frame, Port};

/// Ends the adapters' sleep: what arrives from outside is work.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// How long the sender sleeps before it looks at its port in any case.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts a thread that hands the port's frames to `write`, for as long as the process lives. A frame that
/// cannot be written is lost, as on a wire.
///
/// # Errors
/// The system has no thread left.
pub(super) fn send_from(
    mut port: SwitchPort,
    name: &str,
    mut write: impl FnMut(&Frame) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (ring, bell): (SyncSender<()>, _) = mpsc::sync_channel(1);
    port.listen(move || {
        // One that is full has rung already, and one without a listener rings for nobody.
        let (Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(()))) = ring.try_send(());
    });
    let work = move || loop {
        while let Some(frame) = port.receive() {
            if let Err(e) = write(&frame) {
                tracing::debug!("a frame to the outside is lost: {e}");
            }
        }
        if bell.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    };
    std::thread::Builder::new().name(format!("{name}-send")).spawn(work)?;
    Ok(())
}
