//! A network namespace for one thread, with one interface moved into it for as long as it lasts.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use uvia_tools::Failure;

use super::netlink::{Netlink, index_of};

/// This thread's own namespace, with an interface of the namespace that it came from.
///
/// Dropping it gives the interface back. Should the process be killed, the kernel gives NICs back to the
/// initial namespace by itself.
pub struct Room {
    interface: String,
    home: File,
    inside: Netlink,
}

/// The namespace of the thread that opens it.
const THIS_NAMESPACE: &str = "/proc/thread-self/ns/net";

impl Room {
    /// Moves this thread into a new namespace and `interface` after it, with an address in a /24, up.
    ///
    /// The thread stays in the namespace: it should end after the room is dropped.
    ///
    /// # Errors
    /// No such interface, one that the host lives by, or no rights.
    pub fn with_interface(interface: &str, address: Ipv4Addr) -> Result<Self, Failure> {
        let failed = |what: &str, e: io::Error| {
            let hint = match e.kind() {
                io::ErrorKind::PermissionDenied => " (run as root)",
                _ => "",
            };
            Failure::failed(format!("{interface}: {what}: {e}{hint}"))
        };
        refuse_default_route(interface)?;
        let home = File::open(THIS_NAMESPACE).map_err(|e| failed("opening the network namespace", e))?;
        let mut outside = Netlink::open().map_err(|e| failed("a netlink socket", e))?;
        let index = index_of(interface).map_err(|e| failed("looking it up", e))?;
        // SAFETY: no memory is shared with the call; it changes the namespace of this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(failed("making a network namespace", io::Error::last_os_error()));
        }
        let namespace = File::open(THIS_NAMESPACE).map_err(|e| failed("opening the new namespace", e))?;
        let inside = Netlink::open().map_err(|e| failed("a netlink socket", e))?;
        outside.move_to(index, namespace.as_fd()).map_err(|e| failed("moving it to a namespace", e))?;
        // From here on dropping gives it back.
        let mut room = Self { interface: interface.to_owned(), home, inside };
        let index = index_of(interface).map_err(|e| failed("looking it up in its namespace", e))?;
        room.inside.add_address(index, address, 24).map_err(|e| failed("giving it an address", e))?;
        room.inside.set_up(index, true).map_err(|e| failed("turning it on", e))?;
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let outcome = index_of(&self.interface).and_then(|index| {
            self.inside.set_up(index, false)?;
            self.inside.move_to(index, self.home.as_fd())
        });
        if let Err(e) = outcome {
            eprintln!(
                "uvia-perf: giving {} back: {e}; it returns when this process has ended",
                self.interface
            );
        }
    }
}

/// Taking the interface that carries the default route would cut the host off.
fn refuse_default_route(interface: &str) -> Result<(), Failure> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    if is_default_route(&routes, interface) {
        return Err(Failure::failed(format!(
            "{interface}: carries this host's default route, and the test would take it away"
        )));
    }
    Ok(())
}

fn is_default_route(routes: &str, interface: &str) -> bool {
    routes.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace();
        fields.next() == Some(interface) && fields.next() == Some("00000000")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_is_recognised() {
        let routes = "Iface\tDestination\tGateway\neth0\t00000000\t0102A8C0\neth1\t0002A8C0\t00000000\n";
        assert!(is_default_route(routes, "eth0"));
        assert!(!is_default_route(routes, "eth1") && !is_default_route(routes, "eth"));
    }
}
