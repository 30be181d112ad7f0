//! What is printed: at once, or held back and then printed whole, so that of parts that run beside each other each stays
//! together.

use std::cell::RefCell;
use std::fmt::Arguments;

thread_local! {
    /// What this thread holds back, if it does.
    static HELD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line, or holds it back if this thread does that.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::line(format_args!($($words)*)) };
}

/// Prints a line, or holds it back if this thread does that.
pub fn line(words: Arguments) {
    let held = HELD.with_borrow_mut(|held| {
        if let Some(text) = held {
            *text += &format!("{words}\n");
        }
        held.is_some()
    });
    if !held {
        println!("{words}");
    }
}

/// What something says, all of it by this thread, instead of printing it.
pub fn held<T>(what: impl FnOnce() -> T) -> (T, String) {
    HELD.set(Some(String::new()));
    let answer = what();
    (answer, HELD.take().unwrap_or_default())
}
