//! The message layer in a guest: what it adds to the interfaces below it; and between two guests, over two kinds of adapters at
//! once, of which one's cable is pulled.

use std::time::{Duration, Instant};

use uvia_vm::{Guest, Process, Task};

use crate::build::Program;
use crate::report::{Failure, Report, Verdict};

const LIMIT: Duration = Duration::from_secs(180);
/// The test program that is a rank.
pub const RANK: &str = "two_rails";

/// The test program that measures.
pub const OVERHEAD: &str = "overhead_in_guest";

/// Prints what the layer adds over the guest's two NICs.
pub fn overhead(report: &mut Report, guest: &Guest, label: &str, program: &Program) {
    report.case(
        &format!("{label}: messages of 64 bytes and of 1 MiB beside the interfaces below them"),
        || {
            let path = program.path.to_string_lossy();
            let outcome = guest.run([&*path, "--ignored", "--nocapture"], LIMIT)?;
            let text = outcome.text();
            let is_figure = |line: &&str| line.contains("half a round trip:") || line.starts_with("  ");
            let figures: Vec<_> = text.lines().filter(is_figure).collect();
            // For both sizes a heading, both kinds, and what they differ by; for one of them each kind in another way too.
            if !outcome.status.success() || figures.len() != 14 {
                return Err(format!("{:?}\n{text}\n{}", outcome.status, outcome.errors()).into());
            }
            figures.iter().for_each(|line| say!("   {line}"));
            Ok(Verdict::Passed)
        },
    );
}

/// Runs it on two guests, each with two NICs.
pub fn run(report: &mut Report, guests: [&Guest; 2], rank: &Program) {
    report.case("two guests: a channel over two kinds of NICs is striped, and outlives one", || {
        two_rails(guests, rank)
    });
}

/// A session whose ranks find each other by name.
fn session(guests: [&Guest; 2]) -> String {
    let mut text = String::from("name = \"rails\"\nranks = 2\npatience = 120\n");
    for rail in ["a", "b"] {
        text += &format!("[[rail]]\nname = \"{rail}\"\nport = \"vi\"\n");
    }
    for (rank, guest) in guests.iter().enumerate() {
        let [a, b] = guest.nics() else { continue };
        text += &format!("[rank.{rank}]\ndevices = {{ a = \"{a}\", b = \"{b}\" }}\n");
    }
    text
}

fn two_rails(guests: [&Guest; 2], program: &Program) -> Result<Verdict, Failure> {
    let session = session(guests);
    let path = program.path.to_string_lossy().into_owned();
    let start = |rank: usize| {
        let task = Task::new([&*path, "--ignored", "--nocapture"]);
        let task = task.env("UVIA_RANK", rank.to_string()).env("UVIA_SESSION", &*session);
        guests[rank].spawn(task)
    };
    let ranks = [start(0)?, start(1)?];
    // They talk: the cable is pulled in the middle of it.
    flows(&ranks)?;
    guests[0].set_link(0, false)?;
    let pulled = Instant::now();
    let outcomes = [ranks[0].wait(Some(LIMIT))?, ranks[1].wait(Some(LIMIT))?];
    guests[0].set_link(0, true)?;
    for (rank, outcome) in outcomes.iter().enumerate() {
        let (text, errors) = (outcome.text(), outcome.errors());
        if !outcome.status.success()
            || !text.contains("each once and in order")
            || !text.contains("left: [\"b\"]")
        {
            return Err(format!("rank {rank}: {:?}\n{text}\n{errors}", outcome.status).into());
        }
        for line in text.lines().filter(|line| line.contains("messages each way, ") || line.contains("4 MiB"))
        {
            say!("   rank {rank}: {line}");
        }
    }
    say!("   done {:.1} s after the cable was pulled", pulled.elapsed().as_secs_f64());
    Ok(Verdict::Passed)
}

/// Waits until messages go to and fro.
fn flows(ranks: &[Process; 2]) -> Result<(), Failure> {
    if ranks.iter().all(|rank| rank.wait_for_output("messages each way", LIMIT)) {
        return Ok(());
    }
    let said: Vec<_> = ranks
        .iter()
        .map(|rank| [rank.stdout_so_far(), rank.stderr_so_far()].concat())
        .map(|said| String::from_utf8_lossy(&said).into_owned())
        .collect();
    Err(format!("no messages flow\n{}", said.join("\n")).into())
}
