//! Each check, in all interleavings.

use uvia_loom::checks;

#[test]
fn a_turn_excludes() {
    checks::a_turn_excludes();
}

#[test]
fn all_who_wait_have_their_turn() {
    checks::all_who_wait_have_their_turn();
}

#[test]
fn word_is_not_lost() {
    checks::word_is_not_lost();
}

#[test]
fn credits_bound() {
    checks::credits_bound();
}

#[test]
fn many_that_are_turned_away_count_for_nobody() {
    checks::many_that_are_turned_away_count_for_nobody();
}

#[test]
fn frames_pass_a_ring() {
    checks::frames_pass_a_ring();
}

#[test]
fn a_sleeper_is_woken() {
    checks::a_sleeper_is_woken();
}
