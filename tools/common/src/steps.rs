//! Shows, on standard error, which step something long is at.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A spinner on a terminal, plain lines elsewhere; each step with the seconds that have passed.
pub struct Steps {
    spinner: Option<ProgressBar>,
    start: Instant,
}

impl Steps {
    /// Starts.
    pub fn start() -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4}  {wide_msg}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(200));
            spinner
        });
        Self { spinner, start: Instant::now() }
    }

    /// The next step.
    pub fn next(&mut self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        match &self.spinner {
            Some(spinner) => {
                spinner.println(format!("{seconds:>4} s  {what}"));
                spinner.set_message(what.to_owned());
            }
            None => eprintln!("{seconds:>4} s  {what}"),
        }
    }

    /// Takes the spinner away.
    pub fn finish(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.finish();
    }
}
