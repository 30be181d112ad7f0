//! The fuzzer's entry points, by random input and by the corpus.

use proptest::collection::vec;
use proptest::prelude::*;
use uvia_vfio_user::fuzz;
use uvia_vfio_user::wire::{Header, command};
use zerocopy::IntoBytes;

/// A step of a script: mostly a command, with as many arguments as it says.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let commands = (1..17u8, 0..16u8, prop_oneof![4 => Just(0u8), 1 => 0..8u8], any::<bool>());
    let command = commands.prop_flat_map(|(command, words, fds, posted)| {
        let shape = words | u8::from(posted) << 4 | fds << 5;
        let word =
            (prop_oneof![Just(0u8), Just(1), Just(16), any::<u8>()], prop_oneof![Just(0u8), any::<u8>()]);
        vec(word, usize::from(words)).prop_map(move |words| {
            let mut bytes = vec![command, shape];
            bytes.extend(words.into_iter().flat_map(|(value, shape)| [value, shape]));
            bytes
        })
    });
    prop_oneof![20 => command, 1 => vec(any::<u8>(), 0..40)]
}

/// For proptest's usual count of 256.
const CASES: u32 = 2;

fn more_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases * CASES, ..usual }
}

proptest! {
    #![proptest_config(more_cases())]

    #[test]
    fn servers_and_scripts(first in any::<bool>(), steps in vec(step(), 0..40)) {
        let mut script = vec![u8::from(first && steps.len() % 8 == 0)];
        script.extend(steps.concat());
        fuzz::server(&script);
    }

    #[test]
    fn servers_and_garbage(bytes in vec(any::<u8>(), 0..600)) {
        fuzz::server(&bytes);
    }

    #[test]
    fn clients_and_replies(
        replies in vec((2..8u16, 4..8u16, vec(prop_oneof![Just(0u8), Just(32), any::<u8>()], 0..80), any::<u8>()), 0..6),
    ) {
        let mut bytes = Vec::new();
        for (id, command, body, kind) in replies {
            let mut header = Header::command(id, command, body.len());
            header.flags = u32::from(kind & 1) | u32::from(kind & 64 != 0) << 5;
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(&body);
        }
        fuzz::client(&bytes);
    }

    #[test]
    fn clients_and_garbage(bytes in vec(any::<u8>(), 0..200)) {
        fuzz::client(&bytes);
    }
}

#[test]
fn the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/server");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        fuzz::server(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} inputs");
}

#[test]
fn a_device_asks_a_client_that_only_sends() {
    // Everything mapped without a file, then reads that make the device ask.
    let map = [0, command::DMA_MAP as u8, 8, 32, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 31, 0, 0];
    let mut script = map.to_vec();
    for _ in 0..20 {
        script.extend([command::REGION_READ as u8, 4, 8, 0, 0, 0, 0, 0, 8, 0]);
    }
    fuzz::server(&script);
}
