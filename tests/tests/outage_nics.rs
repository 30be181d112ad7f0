//! Linux's own drivers on two NICs, A's link of which goes down and comes up again every 20 s, for 6 s. `tests/run`
//! makes a guest with such NICs of models.

mod kernel;

use kernel::eventually;
use kernel::pair::Pair;

#[test]
#[ignore = "needs a guest whose NICs are models with outages: tests/run runs it there"]
fn the_kernel_sees_a_link_go_and_come() {
    let pair = Pair::up();
    for round in 0..2 {
        eventually(|| (!pair.links()[0]).then_some(()))
            .unwrap_or_else(|| panic!("still up in round {round}"));
        assert!(pair.links()[1], "the other end has a link of its own");
        eventually(|| pair.links()[0].then_some(())).unwrap_or_else(|| panic!("still down in round {round}"));
        pair.ping();
    }
}
