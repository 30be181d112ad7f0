//! The e1000 driver on a model that lies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uvia_models::machine::Kind;

fuzz_target!(
    init: uvia_fuzz::tell_case_on_panic(),
    |bytes: &[u8]| uvia_fuzz::drive(&[Kind::E1000], bytes)
);
