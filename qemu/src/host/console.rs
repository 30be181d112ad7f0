//! A guest's console: kept, shown, logged.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::output::Prefixer;

/// How much of the console is kept in memory.
const TAIL: usize = 16 << 10;

/// The end of what a guest and its QEMU said.
#[derive(Debug, Clone, Default)]
pub struct Console(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tail: VecDeque<u8>,
    open: u32,
}

impl Console {
    /// Follows the serial console until its end, in a thread of its own. With a prefix, lines are shown on
    /// standard error as they come.
    pub fn follow(&self, mut from: impl Read + Send + 'static, prefix: Option<String>, log: Option<File>) {
        let mut taker = self.taker(prefix, log);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => taker.take(&buffer[..n]),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
    }

    /// Follows what a process of the host says, in the same way.
    pub fn follow_errors(&self, from: impl Read + Send + 'static, prefix: Option<String>) {
        let mut taker = self.taker(prefix, None);
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n') {
                let Ok(mut line) = line else { break };
                if !is_noise(&String::from_utf8_lossy(&line)) {
                    line.push(b'\n');
                    taker.take(&line);
                }
            }
        });
    }

    fn taker(&self, prefix: Option<String>, log: Option<File>) -> Taker {
        self.lock().open += 1;
        Taker { console: self.clone(), prefixer: prefix.map(Prefixer::new), log }
    }

    fn keep(&self, bytes: &[u8]) {
        let tail = &mut self.lock().tail;
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(TAIL);
        tail.drain(..excess);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until a dead guest's last words have been read.
    pub fn settle(&self) {
        let _ = self.0.ended.wait_timeout_while(self.lock(), Duration::from_secs(1), |state| state.open > 0);
    }

    /// The last lines, at most `lines` of them.
    pub fn tail(&self, lines: usize) -> String {
        let bytes: Vec<u8> = self.lock().tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// The first line that tells of a kernel panic.
    pub fn panic(&self) -> Option<String> {
        self.tail(usize::MAX).lines().find(|line| line.contains("Kernel panic")).map(str::to_owned)
    }

    /// The panic of a kernel whose timer came no more: the emulator's fault, and nothing's in the guest.
    pub fn lost_timer(&self) -> Option<String> {
        self.panic().filter(|line| line.contains("RCU Stall"))
    }
}

/// What QEMU warns of although it is as it should be: a guest's NICs reach nothing outside, and models report no
/// errors of a PCI Express link.
fn is_noise(line: &str) -> bool {
    ["is not connected to host network", "Could not enable error recovery for the device"]
        .iter()
        .any(|noise| line.contains(noise))
}

/// One source of a console's text; the console counts it until it is dropped.
struct Taker {
    console: Console,
    prefixer: Option<Prefixer>,
    log: Option<File>,
}

impl Taker {
    fn take(&mut self, bytes: &[u8]) {
        // The serial port ends lines with a carriage return too.
        let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'\r').collect();
        self.console.keep(&bytes);
        // A full disk or a closed standard error must not stop the guest.
        if let Some(log) = &mut self.log {
            let _ = log.write_all(&bytes);
        }
        if let Some(prefixer) = &mut self.prefixer {
            let _ = std::io::stderr().lock().write_all(&prefixer.push(&bytes));
        }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.console.lock().open -= 1;
        self.console.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_kept_and_a_panic_found() {
        let console = Console::default();
        let mut text = "old line\n".repeat(10_000);
        text.push_str("[ 1.0] Kernel panic - not syncing: VFS\r\nlast\n");
        console.follow(std::io::Cursor::new(text.into_bytes()), None, None);
        console.settle();
        assert_eq!(console.tail(1), "last");
        assert_eq!(console.panic().as_deref(), Some("[ 1.0] Kernel panic - not syncing: VFS"));
        assert!(console.tail(usize::MAX).len() <= TAIL);
        assert_eq!(console.lost_timer(), None);
    }

    #[test]
    fn a_lost_timer_is_told_from_other_panics() {
        let console = Console::default();
        console.keep(b"rcu: \tPossible timer handling issue on cpu=0\n");
        assert_eq!(console.lost_timer(), None, "it may be a pause");
        let panic = "[  290.1] Kernel panic - not syncing: RCU Stall";
        console.keep(panic.as_bytes());
        assert_eq!(console.lost_timer().as_deref(), Some(panic));
    }
}
