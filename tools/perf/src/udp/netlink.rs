//! The few requests to the kernel's network configuration that a test needs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

/// A route netlink socket: it belongs to the network namespace in which it was made, wherever its user moves.
pub struct Netlink {
    socket: File,
    sequence: u32,
}

/// An interface's number; it is only valid in the namespace in which it was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index(u32);

const ACK: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;

impl Netlink {
    /// A socket in this thread's namespace.
    pub fn open() -> io::Result<Self> {
        // SAFETY: no pointers are passed; the answer is checked.
        let fd = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns. A netlink socket is read and written as a file.
        Ok(Self { socket: unsafe { File::from_raw_fd(fd) }, sequence: 0 })
    }

    /// Moves an interface into the namespace that `namespace` refers to.
    pub fn move_to(&mut self, interface: Index, namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mut body = link_message(interface, 0, 0);
        attribute(&mut body, libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        self.request(libc::RTM_NEWLINK, ACK, &body)
    }

    /// Turns an interface on or off.
    pub fn set_up(&mut self, interface: Index, up: bool) -> io::Result<()> {
        let bit = libc::IFF_UP as u32;
        self.request(libc::RTM_NEWLINK, ACK, &link_message(interface, if up { bit } else { 0 }, bit))
    }

    /// Gives an interface an address.
    pub fn add_address(&mut self, interface: Index, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let mut body = vec![libc::AF_INET as u8, prefix, 0, libc::RT_SCOPE_UNIVERSE];
        body.extend(interface.0.to_ne_bytes());
        attribute(&mut body, libc::IFA_LOCAL, &address.octets());
        attribute(&mut body, libc::IFA_ADDRESS, &address.octets());
        let flags = ACK | (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        self.request(libc::RTM_NEWADDR, flags, &body)
    }

    /// Sends a request, and waits for the kernel's word on it.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        // struct nlmsghdr: length, type, flags, sequence, port.
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend((16 + body.len() as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        self.socket.write_all(&message)?;
        loop {
            let mut answer = [0; 4096];
            let len = self.socket.read(&mut answer)?;
            if let Some(outcome) = outcome(&answer[..len], self.sequence)? {
                return outcome;
            }
        }
    }
}

/// The kernel's word on request `sequence`, if this message has it: struct nlmsghdr, then errno.
fn outcome(answer: &[u8], sequence: u32) -> io::Result<Option<io::Result<()>>> {
    let word = |at: usize| -> io::Result<[u8; 4]> {
        answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a netlink answer was cut short"))
    };
    let kind = u32::from_ne_bytes(word(4)?) as u16;
    if u32::from_ne_bytes(word(8)?) != sequence || i32::from(kind) != libc::NLMSG_ERROR {
        return Ok(None);
    }
    Ok(Some(match i32::from_ne_bytes(word(16)?) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno.wrapping_neg())),
    }))
}

/// struct ifinfomsg: family, padding, type, index, flags, which of them to change.
fn link_message(interface: Index, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
    for word in [interface.0, flags, change] {
        body.extend(word.to_ne_bytes());
    }
    body
}

/// struct rtattr, and padding to a word.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// The number of an interface of this thread's namespace.
pub fn index_of(interface: &str) -> io::Result<Index> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: a terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(Index(index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_checked() {
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        answer[8..12].copy_from_slice(&7u32.to_ne_bytes());
        assert!(outcome(&answer, 7).unwrap().unwrap().is_ok());
        assert!(outcome(&answer, 8).unwrap().is_none());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(outcome(&answer, 7).unwrap().unwrap().unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(outcome(&answer[..18], 7).is_err() && outcome(&[], 7).is_err());
    }

    #[test]
    fn attributes_are_padded() {
        let mut message = Vec::new();
        attribute(&mut message, 1, b"abcde");
        assert_eq!(message.len(), 12);
    }

    #[test]
    fn unknown_interfaces_have_no_index() {
        assert!(index_of("uvia-none0").is_err() && index_of("a\0b").is_err());
        assert!(index_of("lo").is_ok());
    }
}
