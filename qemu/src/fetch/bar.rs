//! Shows how far something long has come: a bar on a terminal, a plain line elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar; it goes away when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for `steps` steps of `what`; an invisible one for who wants to see nothing.
    pub fn new(what: &str, steps: u64, verbose: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        if verbose && !on_terminal {
            eprintln!("uvia-vm: {what}");
        }
        if !verbose || !on_terminal {
            return Bar(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("uvia-vm: {msg} {wide_bar} {percent:>3} % {elapsed}")
        {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Bar(bar)
    }

    /// So many steps are done.
    pub fn at(&self, step: u64) {
        self.0.set_position(step);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
