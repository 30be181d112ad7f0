//! Parts of the run that need nothing of each other, and go on beside each other: a guest keeps one processor busy and waits
//! for much of its time, and what counts instructions has one thread.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

use crate::output;
use crate::report::Report;

/// More guests at once would take more memory than many a machine has.
const MOST: usize = 4;

/// A part of the run.
pub struct Job<'a> {
    name: String,
    /// About how long it takes by itself, on two processors without KVM: the longest begin first, so that none of them is
    /// waited for at the end.
    seconds: u32,
    tests: Box<dyn FnOnce(&mut Report) + Send + 'a>,
}

impl<'a> Job<'a> {
    /// One that counts its tests in the report that it is given, and prints by `say!` from the thread that it runs in.
    pub fn new(name: &str, seconds: u32, tests: impl FnOnce(&mut Report) + Send + 'a) -> Self {
        Self { name: name.to_owned(), seconds, tests: Box::new(tests) }
    }

    fn run(self, report: &mut Report) {
        report.heading(&self.name);
        // One that fails by a panic is not to take the others along.
        if catch_unwind(AssertUnwindSafe(|| (self.tests)(report))).is_err() {
            report.failed(&self.name, "it panicked; standard error says where");
        }
    }
}

/// Runs all of them, as many at a time as there are processors; what each says is printed whole, once it has ended.
pub fn run(report: &mut Report, mut jobs: Vec<Job>) {
    let at_once = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST).min(jobs.len());
    jobs.sort_by_key(|job| std::cmp::Reverse(job.seconds));
    if at_once < 2 {
        // Nothing to mix with: whoever looks on sees each line as it comes.
        return jobs.into_iter().for_each(|job| job.run(report));
    }
    let waiting = Mutex::new(jobs.into_iter());
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let (tell, waiting, empty) = (tell.clone(), &waiting, report.part());
            scope.spawn(move || {
                // Not in a condition of the loop, which would keep the lock while the job runs.
                let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
                while let Some(job) = next() {
                    let (name, mut part, start) = (job.name.clone(), empty.part(), Instant::now());
                    say!("running: {name}");
                    let ((), mut text) = output::held(|| job.run(&mut part));
                    text += &format!("   {name}: {} s", start.elapsed().as_secs());
                    // Its end is the receiver's, who listens until all have let go.
                    let _ = tell.send((text, part));
                }
            });
        }
        drop(tell);
        for (text, part) in told {
            say!("{text}");
            report.add(part);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    #[test]
    fn each_is_counted_and_one_that_panics_fails() {
        let mut report = Report::default();
        let jobs = (0..9)
            .map(|n| {
                Job::new(&format!("job {n}"), n, move |report| {
                    report.case("a case", || Ok(Verdict::Passed));
                    assert_ne!(n, 4, "for a test of the runner");
                    report.case("another", || if n == 5 { Err("no".into()) } else { Ok(Verdict::Passed) });
                })
            })
            .collect();
        run(&mut report, jobs);
        assert_eq!((report.passes(), report.failures()), (9 + 7, 2));
    }
}
