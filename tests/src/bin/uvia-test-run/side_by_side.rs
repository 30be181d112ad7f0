//! Programs that run a few at a time, since many wait more than they work.

use std::io::{Read, Seek};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

/// What is told of a program.
pub enum News {
    /// It was started.
    Started,
    /// It has ended: all that it wrote, to both outputs, and how it ended; or why it could not be run.
    Ended(std::io::Result<(Vec<u8>, ExitStatus)>),
}

/// Runs all programs, `at_once` at a time, in their order; `hear` is told of each, by its place among them.
pub fn run(commands: Vec<Command>, at_once: usize, mut hear: impl FnMut(usize, News)) {
    let waiting = Mutex::new(commands.into_iter().enumerate());
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            let (tell, waiting) = (tell.clone(), &waiting);
            scope.spawn(move || work(waiting, &tell));
        }
        drop(tell);
        for (place, news) in told {
            hear(place, news);
        }
    });
}

fn work(waiting: &Mutex<impl Iterator<Item = (usize, Command)>>, tell: &Sender<(usize, News)>) {
    loop {
        let next = waiting.lock().ok().and_then(|mut waiting| waiting.next());
        let Some((place, command)) = next else { return };
        // Nobody listens any more only when the run itself has failed.
        let _ = tell.send((place, News::Started));
        let _ = tell.send((place, News::Ended(output(command))));
    }
}

/// What a program writes, both outputs in one, as on a terminal. Into a file, not a pipe: whose end is the program's own,
/// whatever it has started and left behind.
fn output(mut command: Command) -> std::io::Result<(Vec<u8>, ExitStatus)> {
    let mut file = tempfile::tempfile()?;
    let status = command.stdout(file.try_clone()?).stderr(file.try_clone()?).status()?;
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok((text, status))
}
