//! Our client of vfio-user, and a server that answers whatever it likes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| uvia_vfio_user::fuzz::client(bytes));
