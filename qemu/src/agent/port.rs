//! The agent's end of the control port.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::failed;
use crate::wire::Frame;

/// Sends frames; shared by everyone who has something to say.
#[derive(Clone)]
pub struct Sender(Arc<Mutex<File>>);

impl Sender {
    /// Sends a frame whole.
    pub fn send(&self, frame: &Frame) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        frame.write(&mut *file)
    }
}

/// Receives frames.
pub struct Receiver(File);

impl Read for Receiver {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            // The port reads as ended until the host's side has been noticed.
            match self.0.read(buf) {
                Ok(0) => std::thread::sleep(Duration::from_millis(5)),
                other => return other,
            }
        }
    }
}

/// Opens the port with this name, once the kernel has found it.
pub fn open(name: &str) -> io::Result<(Receiver, Sender)> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let path = loop {
        if let Some(path) = find(name) {
            break path;
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio-serial port {name}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| failed(path, error))?;
    let sender = Sender(Arc::new(Mutex::new(file.try_clone()?)));
    Ok((Receiver(file), sender))
}

fn find(name: &str) -> Option<String> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let port = ports
        .flatten()
        .find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|text| text.trim() == name))?;
    let path = format!("/dev/{}", port.file_name().to_str()?);
    fs::exists(&path).is_ok_and(|there| there).then_some(path)
}
