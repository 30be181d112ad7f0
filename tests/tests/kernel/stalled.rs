//! A fault of Linux's e1000 driver, which is not to be taken for one of the adapter.
//!
//! Its watchdog, every two seconds, switches the transmitter on (TCTL.EN) when it finds a link and no carrier, and says
//! that there is carrier. A change that sets the adapter up anew takes the carrier away first and ends the watchdog a
//! little later: one that runs in between says that there is carrier, the reset that follows switches the transmitter
//! off, and nobody switches it on again, since the carrier is there. The driver's own comment in `e1000_down` describes
//! this, with its remedy: the interface goes down and up.

use super::ethtool;
use super::pair::Pair;
use super::{eventually, run};

/// TCTL in the driver's dump of registers, and its bit EN (8254x manual, 13.4.33).
const TCTL: usize = 7;
const EN: u32 = 1 << 1;

/// Waits for both links after a change that sets the adapters up anew, and mends what the driver may have done to them.
pub fn settle(pair: &Pair) {
    let linked = || (pair.links() == [true; 2]).then_some(());
    eventually(linked).unwrap_or_else(|| panic!("a link is gone: {}", pair.state()));
    mend(&pair.a);
    let b = pair.b.clone();
    pair.in_b(move || mend(&b));
    eventually(linked).unwrap_or_else(|| panic!("a link is gone: {}", pair.state()));
}

/// Takes an interface down and up whose transmitter is off while it has carrier.
fn mend(interface: &str) {
    if ethtool::driver(interface).as_deref() != Some("e1000") {
        return;
    }
    let off = ethtool::registers(interface).get(TCTL).is_some_and(|tctl| tctl & EN == 0);
    if off {
        println!("{interface}: Linux's driver has left its transmitter off: down and up");
        for state in ["down", "up"] {
            run("ip", &["link", "set", interface, state]);
        }
    }
}
