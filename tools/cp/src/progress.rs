//! How far a copy is: a bar on a terminal, a line now and then elsewhere; on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal.
const EVERY: Duration = Duration::from_secs(3);

/// A copy's progress.
pub struct Progress {
    bar: Option<ProgressBar>,
    name: String,
    size: u64,
    next: Instant,
}

impl Progress {
    /// Of a copy of `size` bytes.
    pub fn new(name: &str, size: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            let bar = ProgressBar::new(size).with_message(name.to_owned());
            match ProgressStyle::with_template(style) {
                Ok(style) => bar.with_style(style.progress_chars("=> ")),
                Err(_) => bar,
            }
        });
        Self { bar, name: name.to_owned(), size, next: Instant::now() + EVERY }
    }

    /// So many bytes are done.
    pub fn at(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        } else if Instant::now() >= self.next {
            let percent = bytes.saturating_mul(100).checked_div(self.size).unwrap_or(100);
            eprintln!("uvia-cp: {}: {percent} % of {} bytes", self.name, self.size);
            self.next = Instant::now() + EVERY;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
