//! Our server of vfio-user, and a client that sends whatever it likes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| uvia_vfio_user::fuzz::server(bytes));
