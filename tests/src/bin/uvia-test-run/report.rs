//! Counts tests, says what each came to, and sums up.

use std::time::Instant;

/// What a test came to.
pub enum Verdict {
    /// As it should.
    Passed,
    /// It could not be run here, and why.
    Skipped(String),
}

/// Why a test failed.
pub type Failure = Box<dyn std::error::Error>;

/// All tests so far.
pub struct Report {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
    start: Instant,
}

impl Default for Report {
    fn default() -> Self {
        Self { passed: 0, failed: Vec::new(), skipped: 0, start: Instant::now() }
    }
}

impl Report {
    /// One for a part that goes on beside others; to be added once that has ended.
    pub fn part(&self) -> Self {
        Self { start: self.start, ..Self::default() }
    }

    /// Adds what a part came to.
    pub fn add(&mut self, part: Self) {
        self.passed += part.passed;
        self.failed.extend(part.failed);
        self.skipped += part.skipped;
    }

    /// Announces a part of the run.
    pub fn heading(&self, text: &str) {
        say!("\n== {text} ({} s since the start)", self.start.elapsed().as_secs());
    }

    /// Runs one test.
    pub fn case(&mut self, name: &str, test: impl FnOnce() -> Result<Verdict, Failure>) {
        let start = Instant::now();
        let verdict = test();
        let seconds = start.elapsed().as_secs_f32();
        match verdict {
            Ok(Verdict::Passed) => self.passed(&format!("{name} ({seconds:.1} s)")),
            Ok(Verdict::Skipped(why)) => self.skipped(name, &why),
            Err(why) => self.failed(name, &why.to_string()),
        }
    }

    /// A test that passed.
    pub fn passed(&mut self, name: &str) {
        self.passed += 1;
        say!("ok {name}");
    }

    /// A test that did not.
    pub fn failed(&mut self, name: &str, why: &str) {
        say!("FAILED {name}: {why}");
        self.failed.push(name.to_owned());
    }

    /// A test that was not run.
    pub fn skipped(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        say!("skipped {name}: {why}");
    }

    /// Counts a line of Rust's test harness, if it tells of a test; `ignored_elsewhere` says of a reason that the
    /// test is run in another part.
    pub fn harness_line(&mut self, group: &str, line: &str, ignored_elsewhere: impl Fn(&str) -> bool) {
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            return;
        };
        let name = format!("{group}{name}");
        match outcome.split_once(", ").unwrap_or((outcome, "")) {
            ("ok", _) => self.passed += 1,
            ("FAILED", _) => self.failed(&name, "see above"),
            ("ignored", why) if ignored_elsewhere(why) => {}
            ("ignored", why) => self.skipped(&name, why),
            _ => {}
        }
    }

    /// How many have failed.
    pub fn failures(&self) -> usize {
        self.failed.len()
    }

    /// How many have passed.
    pub fn passes(&self) -> usize {
        self.passed
    }

    /// Sums up; whether all is well.
    pub fn close(&self) -> bool {
        say!("\n{} s", self.start.elapsed().as_secs());
        for name in &self.failed {
            say!("failed: {name}");
        }
        say!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped);
        self.failed.is_empty() && self.passed > 0
    }
}
