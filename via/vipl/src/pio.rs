//! Interfaces whose sends lie in an adapter's memory.

use std::ffi::c_ulong;

use uvia::{EndpointClass, PioProperties};

use crate::nic::Nic;
use crate::types::{PioAttributes, Return};

/// What such interfaces can do on a NIC.
fn properties(nic: &Nic) -> Result<PioProperties, Return> {
    nic.device.nic.pio().map_err(|_| Return::NotSupported)
}

/// VipxQueryPio.
pub(crate) fn query(nic: &Nic) -> Result<PioAttributes, Return> {
    let pio = properties(nic)?;
    Ok(PioAttributes {
        windows: pio.windows as c_ulong,
        windows_left: pio.windows_left as c_ulong,
        credits: pio.slots as c_ulong,
        max_transfer_size: pio.mtu.into(),
        store_width: pio.store_width as c_ulong,
        alignment: pio.alignment as c_ulong,
        missing: pio.missing.bits().into(),
    })
}

/// Attributes of an interface that is to be of this class: the send queue is as deep as there are credits.
pub(crate) fn shaped(nic: &Nic, attributes: uvia::ViAttributes) -> Result<uvia::ViAttributes, Return> {
    let pio = properties(nic)?;
    if attributes.rdma_write || attributes.rdma_read {
        return Err(Return::NotSupported);
    }
    if attributes.max_transfer_size > pio.mtu {
        return Err(Return::InvalidMtu);
    }
    Ok(uvia::ViAttributes { class: EndpointClass::Pio, send_depth: pio.slots, ..attributes })
}
