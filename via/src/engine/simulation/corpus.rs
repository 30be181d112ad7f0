//! Frames that are kept: each reason to drop one, for each kind, and each kind that is taken.

use super::dissected::takes;
use super::pair::{MILLI, Pair, SECOND};
use crate::ViState;
use crate::wire::data;

const CORPUS: &str = include_str!("corpus.txt");

struct Case {
    taken: bool,
    name: &'static str,
    frame: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let lines = CORPUS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [verdict, name, bytes] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let digits = |at: usize| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap();
            let frame = (0..bytes.len()).step_by(2).map(digits).collect();
            Case { taken: verdict == "taken", name, frame }
        })
        .collect()
}

#[test]
fn each_has_its_verdict() {
    let cases = cases();
    assert!(cases.len() > 100 && cases.iter().filter(|case| case.taken).count() >= 13);
    for case in cases {
        let (sound, _) = takes(&case.frame);
        assert_eq!(sound, case.taken, "{}", case.name);
    }
}

/// As they are, at a connection that they do not belong to: nothing comes of it.
#[test]
fn none_disturbs_a_connection_of_others() {
    let mut pair = Pair::new();
    for case in cases() {
        for host in [0, 1] {
            let before = pair.world.hosts[host].port.offered;
            let mut frame = case.frame.clone();
            if let Some(to) = frame.first_chunk_mut::<6>() {
                *to = pair.world.hosts[host].mac.0;
            }
            pair.world.deliver(host, &frame);
            assert!(pair.world.hosts[host].port.offered - before <= 1, "{}", case.name);
        }
        pair.world.run(MILLI);
    }
    works(&mut pair);
}

/// With slot and identity of a live connection: what is unsound is dropped and counted, and the connection goes on; what
/// is sound may end it, and does no other harm.
#[test]
fn what_is_unsound_is_dropped_at_its_connection_too() {
    for case in cases() {
        let connected =
            case.frame.len() >= 32 && (case.frame[15] == data::DATA || case.frame[15] == data::ACK);
        if !connected {
            continue;
        }
        let mut pair = Pair::new();
        pair.world.trace = Some(Vec::new());
        pair.post_receive(1, 0..100);
        let message = pair.message(0, 0..100);
        pair.send(0, message);
        pair.wait(1);
        pair.wait(0);
        let trace = pair.world.trace.take().unwrap();
        let model = trace.iter().find(|frame| frame[15] == data::DATA).expect("a message was sent");
        let mut frame = case.frame.clone();
        frame[18..20].copy_from_slice(&model[18..20]);
        frame[24..32].copy_from_slice(&model[24..32]);
        pair.world.deliver(1, &frame);
        if !case.taken {
            let known = frame.len() >= crate::wire::FIXED && frame[14] == 1;
            assert_eq!(pair.world.hosts[1].engine.counters().unsound, u64::from(known), "{}", case.name);
            assert_eq!(pair.state(1), ViState::Connected, "{}", case.name);
            works(&mut pair);
        }
        pair.world.run(SECOND);
    }
}

/// A message goes through.
fn works(pair: &mut Pair) {
    pair.region[0].write(0, b"still here").unwrap();
    pair.post_receive(1, 4096..4196);
    let message = pair.message(0, 0..10);
    pair.send(0, message);
    assert!(pair.wait(1).descriptor.status().is_success());
    assert!(pair.wait(0).descriptor.status().is_success());
    let mut bytes = [0; 10];
    pair.region[1].read(4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
}
