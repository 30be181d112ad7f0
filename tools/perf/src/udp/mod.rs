//! The kernel's own stack, for comparison: UDP over blocking sockets.

mod link;
mod netlink;
mod room;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use uvia_driver::pci::{PciAddress, Sysfs};
use uvia_tools::Failure;

use crate::cli::{PairOrHost, UdpArgs};
use crate::datagram::{Stop, run_client, serve};
use crate::load::{Load, Test};
use crate::report::Subject;
use link::UdpLink;
use room::Room;

/// Where the listening end waits unless told otherwise.
const PORT: u16 = 18515;

/// Runs `uvia-perf udp`.
pub fn run(test: Test, args: &UdpArgs) -> Result<(), Failure> {
    let load = Load::from(&args.load);
    match args.ends.choice()? {
        PairOrHost::Pair(a, b) => pair(test, &load, &interface_of(a)?, &interface_of(b)?),
        PairOrHost::Listen { keep } => {
            let mut link = UdpLink::bind(args.bind)?;
            eprintln!("uvia-perf: waiting for datagrams at {}", link.local()?);
            loop {
                match serve(&mut link, load.timeout, &Stop::new(false)) {
                    Err(Failure::Failed(what)) if keep => eprintln!("uvia-perf: {what}"),
                    outcome if !keep => return outcome,
                    _ => {}
                }
            }
        }
        PairOrHost::To(peer) => {
            let peer: SocketAddr = peer
                .parse()
                .map_err(|_| Failure::usage(format!("{peer:?} is not ADDR:PORT such as 192.0.2.1:{PORT}")))?;
            let mut link = UdpLink::connect(peer)?;
            run_client(&mut link, test, &load, false, subject(test, &load, route_driver(peer)))
        }
    }
}

fn subject(test: Test, load: &Load, nic: String) -> Subject {
    Subject {
        test: match test {
            Test::Latency => "udp-lat",
            Test::Bandwidth => "udp-bw",
        },
        op: "send",
        class: "kernel",
        nic,
        manner: None,
        size: 0,
        lossy: true,
        json: load.json,
        headed: false,
    }
}

/// Both ends in this process, each in a thread with a network namespace of its own: within one namespace the
/// kernel would short-cut the NICs.
fn pair(test: Test, load: &Load, a: &str, b: &str) -> Result<(), Failure> {
    const HERE: Ipv4Addr = Ipv4Addr::new(192, 168, 247, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(192, 168, 247, 2);
    let driver = driver_of(a);
    let stop = Stop::new(false);
    std::thread::scope(|scope| {
        let (ready, wait_ready) = mpsc::channel();
        let stop = &stop;
        let server = scope.spawn(move || {
            let _room = Room::with_interface(b, THERE)?;
            let mut link = UdpLink::bind(SocketAddr::from((THERE, PORT)))?;
            // The other thread may have failed and gone: then it has told to stop.
            let _ = ready.send(());
            serve(&mut link, load.timeout, stop)
        });
        let client = scope.spawn(move || {
            let outcome = (|| {
                let _room = Room::with_interface(a, HERE)?;
                // The sender goes when the other thread fails.
                wait_ready.recv().map_err(|_| Failure::Reported)?;
                let mut link = UdpLink::connect(SocketAddr::from((THERE, PORT)))?;
                run_client(&mut link, test, load, false, subject(test, load, driver))
            })();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome
        });
        let outcomes = [client.join(), server.join()]
            .map(|outcome| outcome.unwrap_or_else(|_| Err(Failure::failed("a thread of the test panicked"))));
        // The server's failure is the reason when the client only saw that there is no server.
        let [client, server] = outcomes;
        match client {
            Err(Failure::Reported) => server.and(Err(Failure::failed("the listening end failed"))),
            outcome => outcome.and(server),
        }
    })
}

/// The kernel's interface of a PCI function, or of that name.
fn interface_of(device: &str) -> Result<String, Failure> {
    if let Ok(address) = device.parse::<PciAddress>() {
        let function = Sysfs::default().function(address)?;
        return match function.interfaces.as_slice() {
            [name, ..] => Ok(name.clone()),
            [] => Err(Failure::failed(format!(
                "{device}: has no kernel interface (driver: {}); give it back to its kernel driver with `uvia-bind detach {device}`",
                function.driver.as_deref().unwrap_or("none")
            ))),
        };
    }
    if !device.contains('/') && Path::new("/sys/class/net").join(device).exists() {
        return Ok(device.to_owned());
    }
    Err(Failure::failed(format!("{device}: is neither a PCI address nor a network interface here")))
}

/// The kernel driver of an interface, or "none" for those without a device.
fn driver_of(interface: &str) -> String {
    std::fs::read_link(format!("/sys/class/net/{interface}/device/driver"))
        .ok()
        .and_then(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .unwrap_or_else(|| "none".to_owned())
}

/// The driver under the interface whose address the kernel chooses for `peer`.
fn route_driver(peer: SocketAddr) -> String {
    let local = || -> std::io::Result<std::net::IpAddr> {
        let unspecified: std::net::IpAddr = if peer.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((unspecified, 0))?;
        socket.connect(peer)?;
        Ok(socket.local_addr()?.ip())
    };
    match local() {
        Ok(address) if address.is_loopback() => "loopback".to_owned(),
        _ => "kernel".to_owned(),
    }
}

/// How long one receive blocks at most.
const SLICE: Duration = Duration::from_millis(100);
