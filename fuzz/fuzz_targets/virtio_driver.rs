//! The virtio driver, with split and with packed rings, on a model that lies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uvia_models::machine::Kind;

fuzz_target!(
    init: uvia_fuzz::tell_case_on_panic(),
    |bytes: &[u8]| uvia_fuzz::drive(&[Kind::Virtio, Kind::VirtioPacked], bytes)
);
