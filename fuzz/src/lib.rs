//! What the targets for drivers share.

#![deny(missing_docs)]

use std::sync::{Mutex, PoisonError};

use uvia_models::machine::Kind;
use uvia_tests::lies::{self, Case};

static CASE: Mutex<Option<Case>> = Mutex::new(None);

/// Sees to it that a panic names its case: the line for `tests/tests/lies/corpus.txt`. To be called once, when the fuzzer has
/// made its own arrangements for panics.
pub fn tell_case_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(case) = CASE.try_lock()
            && let Some(case) = &*case
        {
            eprintln!("the case, for tests/tests/lies/corpus.txt: {case}");
        }
        before(info);
    }));
}

/// Runs the case that `bytes` stand for, with a device of one of these kinds that lies.
pub fn drive(liar: &[Kind], bytes: &[u8]) {
    let case = Case::from_bytes(liar, bytes);
    *CASE.lock().unwrap_or_else(PoisonError::into_inner) = Some(case.clone());
    lies::run(&case);
}
