//! What the launcher asks of the agent.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::nics::Nic;
use super::port::Sender;
use super::processes::Processes;
use super::{failed, modules, mounts};
use crate::wire::{Frame, Kind, Run, put_list, take_list};

/// Answers requests.
pub struct Requests {
    processes: Processes,
    to: Sender,
    nics: Vec<Nic>,
    /// A function that is adapter memory.
    memory: Option<Nic>,
}

impl Requests {
    /// A fresh guest.
    pub fn new(processes: Processes, to: Sender) -> Self {
        Requests { processes, to, nics: Vec::new(), memory: None }
    }

    /// Handles a frame. Only a broken port is an error here; all others are answers.
    pub fn handle(&mut self, frame: Frame) -> io::Result<()> {
        let id = frame.id;
        let answer = match frame.kind {
            Kind::Run => match Run::decode(&frame.payload) {
                Ok(run) => return self.processes.spawn(id, &run),
                Err(error) => Err(error),
            },
            Kind::Signal => {
                self.processes.signal(id, frame.payload.first().copied().unwrap_or(9));
                return Ok(());
            }
            Kind::CloseOutput => {
                self.processes.close_output(id, frame.payload.first().copied().unwrap_or(1));
                return Ok(());
            }
            Kind::Configure => take_list(&mut &frame.payload[..]).and_then(|items| self.configure(&items)),
            Kind::Attach => {
                self.nics.iter().chain(&self.memory).try_for_each(Nic::attach).map(|()| Vec::new())
            }
            Kind::Detach => self.nics.iter().map(Nic::detach).collect(),
            Kind::Put => put(&frame.payload).map(|()| Vec::new()),
            Kind::Load => take_list(&mut &frame.payload[..])
                .and_then(|sets| {
                    sets.iter().try_for_each(|set| modules::load_set(&String::from_utf8_lossy(set)))
                })
                .map(|()| Vec::new()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a request")),
        };
        let answer = match answer {
            Ok(results) => {
                let mut payload = Vec::new();
                put_list(&mut payload, &results);
                Frame::new(Kind::Done, id, payload)
            }
            Err(error) => Frame::new(Kind::Failed, id, error.to_string()),
        };
        self.to.send(&answer)
    }

    /// Sets the guest up; the answer is the NICs' addresses, and behind them that of the adapter memory.
    fn configure(&mut self, items: &[Vec<u8>]) -> io::Result<Vec<String>> {
        for item in items {
            let text = String::from_utf8_lossy(item);
            match text.split_once('=').unwrap_or((&text, "")) {
                ("hostname", name) => mounts::set_hostname(name)?,
                ("hugepages", count) => mounts::check_hugepages(count.parse().unwrap_or(0))?,
                ("nic", nic) => {
                    let (port, module) = nic.split_once(',').unwrap_or((nic, ""));
                    self.nics.push(Nic::find(port, module)?);
                }
                ("memory", port) => self.memory = Some(Nic::find(port, "")?),
                (key, _) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unknown setting {key}")));
                }
            }
        }
        Ok(self.nics.iter().chain(&self.memory).map(|nic| nic.address().to_owned()).collect())
    }
}

fn put(mut payload: &[u8]) -> io::Result<()> {
    let items = take_list(&mut payload)?;
    let [path, mode, how, data] = items.as_slice() else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a file to write has four parts"));
    };
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let mode = u32::from_str_radix(&String::from_utf8_lossy(mode), 8).unwrap_or(0o644);
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).mode(mode);
        if how == b"more" {
            options.append(true)
        } else {
            options.write(true).truncate(true)
        };
        options.open(path)?.write_all(data)
    };
    write().map_err(|error| failed(format!("write {}", path.display()), error))
}
