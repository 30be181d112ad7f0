//! Messages from buffers that are used again make no system call.

mod common;
// The crate that it lives in is built of all others.
#[allow(dead_code, reason = "this test uses a part of it")]
#[path = "../../../tests/src/sealed.rs"]
mod sealed;

use common::{Kind, rail};
use sealed::{Sealed, without_system_calls};
use uvia_message::{
    Board, Channel, Directory, Module, Policy, ReceiveMode, Result, SendMode, Session, SessionOptions,
    Thresholds,
};

const LONG: usize = 1 << 20;
/// How sealed code tells that a call failed: by a status of its process, which is all it may do.
const FAILED: i32 = 33;

/// One end of a ping-pong of a short and a long piece.
struct End {
    session: Session,
    channel: Channel,
    image: Vec<u8>,
    room: Vec<u8>,
}

impl End {
    fn new(name: &str, board: &Board, rank: usize, module: Module) -> Self {
        let mut options = SessionOptions::new(name, rank, 2);
        options.policy = Policy::Latency;
        let never = Thresholds::NEVER;
        let none = Thresholds { inline: 0, gather: never, long: never, read: never };
        options.thresholds = match module {
            Module::Copied | Module::Inline => none,
            Module::Gathered => Thresholds { gather: 1, ..none },
            Module::Written => Thresholds { long: 4096, ..none },
            Module::Read => Thresholds { long: 4096, read: 1, ..none },
        };
        let rails = vec![("rail0".to_owned(), rail(Kind::Vi, name, 0, rank))];
        let session = Session::open(options, rails, &Directory::Local(board.clone())).expect("it opens");
        let channel = session.channel(0, &[]).expect("a channel");
        Self { session, channel, image: vec![7; LONG], room: vec![0; LONG] }
    }

    fn send(&self) -> Result<()> {
        self.channel.send(1 - self.session.rank(), |message| {
            message.put(&64u64)?;
            message.cheaper(&self.image, ReceiveMode::Cheaper)
        })
    }

    fn receive(&mut self) -> Result<u64> {
        let room = &mut self.room[..];
        self.channel.receive(1 - self.session.rank(), |message| {
            let number = message.get()?;
            message.cheaper(room, SendMode::Cheaper)?;
            Ok(number)
        })
    }
}

/// Rounds of a ping-pong, of which the end of this thread is sealed once both have warmed up.
fn rounds(module: Module, spoil: bool) -> Sealed {
    let setup = || {
        let (name, board) = (common::fresh_name(), Board::default());
        let (other_name, other_board) = (name.clone(), board.clone());
        std::thread::spawn(move || {
            let mut end = End::new(&other_name, &other_board, 1, module);
            while end.receive().and_then(|_| end.send()).is_ok() {}
        });
        let mut end = End::new(&name, &board, 0, module);
        for _ in 0..5 {
            end.send().expect("it goes");
            assert_eq!(end.receive().expect("it comes"), 64);
        }
        end
    };
    let outcome = without_system_calls(setup, |end| {
        for _ in 0..20 {
            if end.send().is_err() || end.receive().is_err() {
                sealed::end(FAILED);
            }
        }
        if spoil {
            std::thread::yield_now();
        }
    });
    outcome.expect("a child runs")
}

#[test]
fn a_mebibyte_from_a_buffer_that_is_used_again_takes_no_system_call() {
    for module in [Module::Written, Module::Read] {
        assert_eq!(rounds(module, false), Sealed::Clean, "{module:?}");
        assert_eq!(rounds(module, true), Sealed::Killed, "the seal holds");
    }
}

/// However short the packets are, of which there are many then.
#[test]
fn nor_does_one_that_goes_in_packets() {
    for module in [Module::Copied, Module::Gathered] {
        assert_eq!(rounds(module, false), Sealed::Clean, "{module:?}");
    }
}
