//! How calls tell that they failed: by -1 or NULL, and by a text that the thread keeps.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use uvia_message::{Error, Result};

thread_local! {
    static WHY: RefCell<CString> = RefCell::default();
}

/// Keeps why a call fails.
pub fn fail(e: &Error) {
    let text = e.to_string().replace('\0', " ");
    // A thread that is ending has no such place any more; it will not ask either.
    let _ = WHY.try_with(|why| *why.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// What was kept.
pub fn why() -> *const c_char {
    WHY.try_with(|why| why.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// 0, or -1.
pub fn status(outcome: Result<()>) -> c_int {
    number(outcome.map(|()| 0))
}

/// A number, or -1.
pub fn number(outcome: Result<usize>) -> c_int {
    match outcome {
        Ok(number) => c_int::try_from(number).unwrap_or(c_int::MAX),
        Err(e) => {
            fail(&e);
            -1
        }
    }
}

/// An argument that cannot be.
pub fn wrong(what: &str) -> Error {
    Error::Config(what.to_owned())
}
