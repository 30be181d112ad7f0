//! What the layer promises beside the bytes, on each port and on several rails: the same suite for all.

mod common;

use common::{Kind, suite};

#[test]
fn virtual_interfaces_pass_the_suite() {
    suite::all(&[Kind::Vi]);
}

#[test]
fn tcp_passes_the_suite() {
    suite::all(&[Kind::Tcp]);
}

#[test]
fn shared_memory_passes_the_suite() {
    suite::all(&[Kind::Shared]);
}

#[test]
fn rails_of_all_kinds_together_pass_the_suite() {
    suite::all(&[Kind::Vi, Kind::Tcp, Kind::Shared]);
}
