//! The polled data path makes no system call.

use uvia::{Nic, NicOptions};
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::{PingPong, Sealed, ServedModels, ViPair, memory_pair, without_system_calls};

const MESSAGES: usize = 20_000;
/// Over models, where another thread has to do its part for each, perhaps on the same processor.
const SERVED_MESSAGES: usize = 400;

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

/// Messages between two adapters that this process serves and a sealed child of it drives.
fn over_models(kind: Kind, doorbells: Doorbells, size: usize) -> Sealed {
    let folder = tempfile::tempdir().unwrap();
    let models = ServedModels::start(folder.path(), &[kind; 2], doorbells);
    let outcome = without_system_calls(
        || {
            let open = |n: usize| {
                let options = NicOptions { name: Some(format!("end {n}")), ..NicOptions::default() };
                Nic::open(&models.names()[n], options).expect("the model is served")
            };
            PingPong::new(ViPair::connect(open(0), open(1), |_| ()).expect("the pair connects"), size, 1)
        },
        |ping| (0..SERVED_MESSAGES / 2).for_each(|_| ping.driven_round()),
    );
    outcome.unwrap()
}

#[test]
fn nor_does_it_over_a_device_that_is_served_with_doorbells_to_store_into() {
    for kind in Kind::ALL {
        for size in [64, 20_000] {
            let outcome = over_models(*kind, Doorbells::Polled, size);
            assert_eq!(outcome, Sealed::Clean, "{}: messages of {size} bytes", kind.name());
        }
    }
}

#[test]
fn and_it_does_with_doorbells_that_are_messages() {
    for kind in Kind::ALL {
        assert_eq!(over_models(*kind, Doorbells::Trapped, 64), Sealed::Killed, "{}", kind.name());
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
