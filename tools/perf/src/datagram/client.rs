//! The end that chooses the test.

use super::link::{Link, ask};
use super::wire::{Body, Head, Kind, new_session};
use super::{bw, lat};
use crate::load::{Load, Test};
use crate::report::Subject;
use uvia_tools::Failure;

/// Runs a test against [`super::serve`] at the link's peer, and prints a row for each size; `copies`: the peer keeps what
/// packets carry.
pub fn run_client<L: Link>(
    link: &mut L,
    test: Test,
    load: &Load,
    copies: bool,
    mut subject: Subject,
) -> Result<(), Failure> {
    let mut session = new_session();
    for size in load.sizes_up_to(L::LEAST, link.usual_payload(), link.max_payload(), L::LIMIT)? {
        session = session.wrapping_add(1);
        let hello = Head { kind: Kind::Hello, session, sequence: 0 };
        let ready = ask(link, hello, Body([size as u64, copies.into(), 0]), Kind::HelloAck, load.timeout)?;
        let most = ready.body.0[0];
        if size as u64 > most {
            return Err(Failure::usage(format!("{size} bytes are over the {most} that the other end takes")));
        }
        subject.size = size;
        match test {
            Test::Latency => subject.print_latency(&lat::client(link, session, size, load)?)?,
            Test::Bandwidth => subject.print_bandwidth(&bw::client(link, session, size, load)?)?,
        }
    }
    ask(link, Head { kind: Kind::Bye, session, sequence: 0 }, Body::default(), Kind::ByeAck, load.timeout)?;
    Ok(())
}
