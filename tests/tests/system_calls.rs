//! The polled data path makes no system call.

use uvia_tests::{PingPong, Sealed, ViPair, memory_pair, without_system_calls};

const MESSAGES: usize = 20_000;

#[test]
fn a_message_takes_no_system_call() {
    for size in [0, 64, 1000, 20_000] {
        let outcome = without_system_calls(
            || PingPong::new(ViPair::over_memory(memory_pair()), size, 1),
            |ping| (0..MESSAGES / 2).for_each(|_| ping.round()),
        );
        assert_eq!(outcome.unwrap(), Sealed::Clean, "messages of {size} bytes");
    }
}

#[test]
fn the_seal_holds() {
    let outcome = without_system_calls(
        || (),
        |()| {
            std::thread::yield_now();
        },
    );
    assert_eq!(outcome.unwrap(), Sealed::Killed);
}
