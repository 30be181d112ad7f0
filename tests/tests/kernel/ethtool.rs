//! Statistics, registers and offloads of an interface, by the kernel's ethtool calls.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_REGISTERS: u32 = 0x04;
const SET_RECEIVE_SUMS: u32 = 0x15;
const SET_TRANSMIT_SUMS: u32 = 0x17;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const SET_SEGMENTATION: u32 = 0x1f;
/// The set of names that are those of statistics.
const STATISTICS: u32 = 1;
const NAME: usize = 32;
/// Of struct ethtool_drvinfo: its length, and where the driver's name, the number of statistics and the bytes of registers
/// are.
const DRIVER_INFO: usize = 196;
const DRIVER_NAME: usize = 4;
const STATISTICS_COUNT: usize = 180;
const REGISTERS_LENGTH: usize = 192;

/// What a NIC may do for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Cutting of long TCP packets.
    Segmentation,
    /// Sums of what is sent.
    TransmitSums,
    /// Sums of what is received.
    ReceiveSums,
}

/// Switches a feature on or off.
///
/// # Errors
/// The driver or its NIC does not have it.
pub fn switch(interface: &str, feature: Feature, on: bool) -> io::Result<()> {
    let command = match feature {
        Feature::Segmentation => SET_SEGMENTATION,
        Feature::TransmitSums => SET_TRANSMIT_SUMS,
        Feature::ReceiveSums => SET_RECEIVE_SUMS,
    };
    let mut bytes = [command.to_ne_bytes(), u32::from(on).to_ne_bytes()].concat();
    call(interface, &mut bytes)
}

/// What the driver says of itself, struct ethtool_drvinfo.
fn information(interface: &str) -> Option<Vec<u8>> {
    let mut info = vec![0; DRIVER_INFO];
    info[..4].copy_from_slice(&GET_DRIVER.to_ne_bytes());
    call(interface, &mut info).ok().map(|()| info)
}

/// A number in it.
fn number(info: &[u8], at: usize) -> usize {
    u32::from_ne_bytes(info[at..at + 4].try_into().unwrap()) as usize
}

fn head(command: u32, second: u32) -> Vec<u8> {
    [command.to_ne_bytes(), second.to_ne_bytes()].concat()
}

/// The driver's name.
pub fn driver(interface: &str) -> Option<String> {
    let info = information(interface)?;
    let name = &info[DRIVER_NAME..DRIVER_NAME + NAME];
    Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
}

/// The adapter's registers, those that its driver dumps; none if it dumps none.
pub fn registers(interface: &str) -> Vec<u32> {
    let Some(info) = information(interface) else { return Vec::new() };
    let length = number(&info, REGISTERS_LENGTH);
    let mut dump = [head(GET_REGISTERS, 0), (length as u32).to_ne_bytes().to_vec()].concat();
    let start = dump.len();
    dump.resize(start + length, 0);
    if call(interface, &mut dump).is_err() {
        return Vec::new();
    }
    dump[start..].chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// All statistics of the driver, by name; none if it has none.
pub fn statistics(interface: &str) -> Vec<(String, u64)> {
    let Some(info) = information(interface) else { return Vec::new() };
    let count = number(&info, STATISTICS_COUNT);
    let mut names = [head(GET_STRINGS, STATISTICS), (count as u32).to_ne_bytes().to_vec()].concat();
    let start = names.len();
    names.resize(start + count * NAME, 0);
    let mut values = head(GET_STATISTICS, count as u32);
    values.resize(8 + count * 8, 0);
    if call(interface, &mut names).is_err() || call(interface, &mut values).is_err() {
        return Vec::new();
    }
    let names = names[start..]
        .chunks(NAME)
        .map(|name| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
    let values = values[8..].chunks(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap()));
    names.zip(values).collect()
}

/// One of them.
pub fn value(all: &[(String, u64)], name: &str) -> Option<u64> {
    all.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

fn call(interface: &str, data: &mut [u8]) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: the request and the data, which is as long as its head says, outlive the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
