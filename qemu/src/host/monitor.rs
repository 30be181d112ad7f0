//! QEMU's monitor (QMP: a line of JSON each way): for what a guest cannot do to itself.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// The longest that QEMU may take over a command.
const LIMIT: Duration = Duration::from_secs(60);

/// The connection to the monitor of a guest's QEMU.
pub(crate) struct Monitor {
    guest: usize,
    /// None until its first use, when it greets and its commands are asked for.
    state: Mutex<Option<BufReader<UnixStream>>>,
    socket: UnixStream,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Monitor(guest {})", self.guest)
    }
}

impl Monitor {
    /// The monitor at the other end of this socket.
    pub(crate) fn new(guest: usize, socket: UnixStream) -> Self {
        Self { guest, state: Mutex::new(None), socket }
    }

    /// Has QEMU carry out a command; its answer.
    ///
    /// # Errors
    /// QEMU is gone or silent, or refuses the command, and says why.
    pub(crate) fn execute(&self, command: &str, arguments: Value) -> Result<Value> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = match &mut *state {
            Some(lines) => lines,
            none => {
                self.socket.set_read_timeout(Some(LIMIT)).map_err(|error| self.failed(error.to_string()))?;
                let clone = self.socket.try_clone().map_err(|error| self.failed(error.to_string()))?;
                let lines = none.insert(BufReader::new(clone));
                self.ask(lines, "qmp_capabilities", &json!({}))?;
                lines
            }
        };
        self.ask(lines, command, &arguments)
    }

    fn ask(&self, lines: &mut BufReader<UnixStream>, command: &str, arguments: &Value) -> Result<Value> {
        let failed = |error: std::io::Error| self.failed(format!("`{command}`: {error}"));
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        (&self.socket).write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).map_err(failed)? == 0 {
                return Err(self.failed(format!("`{command}`: QEMU is gone")));
            }
            let mut said: Value = serde_json::from_str(&line)
                .map_err(|error| self.failed(format!("`{command}`: {error} in {line:?}")))?;
            if let Some(refusal) = said.get("error") {
                return Err(self.failed(format!("`{command}`: {refusal}")));
            }
            // What is neither is its greeting, or tells of something that happened.
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    fn failed(&self, why: String) -> Error {
        Error::Guest { guest: self.guest, why: format!("QEMU's monitor: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor that says these lines, whatever it is asked; and what it was asked.
    fn says(lines: &str) -> (Monitor, UnixStream) {
        let (ours, mut its) = UnixStream::pair().unwrap();
        its.write_all(lines.as_bytes()).unwrap();
        (Monitor::new(1, ours), its)
    }

    #[test]
    fn answers_are_found_among_what_else_is_said() {
        let (monitor, its) = says(
            "{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"RESET\"}\n{\"return\": {\"n\": 7}}\n{\"return\": {}}\n",
        );
        assert_eq!(monitor.execute("set_link", json!({ "up": false })).unwrap()["n"], 7);
        assert_eq!(monitor.execute("system_reset", json!({})).unwrap(), json!({}));
        drop(monitor);
        let asked: Vec<Value> =
            BufReader::new(its).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        let commands: Vec<_> = asked.iter().map(|line| line["execute"].as_str().unwrap()).collect();
        assert_eq!(commands, ["qmp_capabilities", "set_link", "system_reset"]);
        assert_eq!(asked[1]["arguments"], json!({ "up": false }));
    }

    #[test]
    fn a_refusal_and_an_end_are_errors_that_say_so() {
        let (monitor, its) = says("{\"return\": {}}\n{\"error\": {\"desc\": \"no such device\"}}\n");
        let error = monitor.execute("set_link", json!({})).unwrap_err().to_string();
        assert!(error.contains("guest 1") && error.contains("no such device"), "{error}");
        drop(its);
        assert!(monitor.execute("stop", json!({})).is_err());
    }
}
