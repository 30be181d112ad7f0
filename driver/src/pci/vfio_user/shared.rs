//! What is asked of a served function by those who do not drive it.

use std::sync::Arc;
use std::time::Duration;

use uvia_vfio_user::client::{Client, ClientOptions, RegionDetails};
use uvia_vfio_user::wire::region;

use super::memory::Link;
use super::name::{Place, inherited};
use crate::Result;
use crate::pci::config;

fn connect(name: &str, options: ClientOptions) -> Result<Client> {
    Ok(match Place::parse(name)? {
        Place::Path(path) => Client::connect(&path, Arc::new(Link::default()), options)?,
        Place::Inherited(fd) => {
            Client::over(inherited(fd)?, &format!("fd:{fd}"), Arc::new(Link::default()), options)?
        }
    })
}

/// Vendor and device of a served function, and what it says of a BAR: its file outlives the connection, which is over
/// when this returns, so that others can ask too.
pub fn describe_bar(name: &str, bar: u8) -> Result<((u16, u16), RegionDetails)> {
    let client = connect(name, ClientOptions::default())?;
    let mut ids = [0; 4];
    client.region_read(region::CONFIG, config::VENDOR_ID.into(), &mut ids)?;
    let [a, b, c, d] = ids;
    let details = client.region_info(bar.into())?;
    Ok(((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])), details))
}

/// Whether the server of a function takes a new client, within `patience`, or is gone: whatever client it had before is
/// forgotten then, with all of its memory.
pub fn takes_clients(name: &str, patience: Duration) -> bool {
    match connect(name, ClientOptions { patience }) {
        Ok(_) => true,
        Err(crate::Error::VfioUser(uvia_vfio_user::Error::Connect { .. })) => true,
        Err(_) => false,
    }
}
