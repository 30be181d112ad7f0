//! A rail: a port, by the name that all ranks have for what it is on.

use std::ops::{Deref, DerefMut};

use crate::port::Port;
use crate::port::vi::ViPort;

/// A port, by the name that all ranks have for what it is on.
pub(crate) struct Rail {
    pub(crate) name: String,
    pub(crate) port: Carrier,
    pub(crate) ordered: bool,
}

/// A port. The one on virtual interfaces is known by its type, so that what each message needs of it is no call.
pub(crate) enum Carrier {
    /// On virtual interfaces.
    Vi(Box<ViPort>),
    /// Any other.
    Other(Box<dyn Port>),
}

impl Deref for Carrier {
    type Target = dyn Port;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Vi(port) => &**port,
            Self::Other(port) => &**port,
        }
    }
}

impl DerefMut for Carrier {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Vi(port) => &mut **port,
            Self::Other(port) => &mut **port,
        }
    }
}

/// The port on virtual interfaces that a connection has to itself.
macro_rules! plain_port {
    ($core:ident, $connection:ident) => {
        match $core.rails.get_mut(usize::from($connection.plain)) {
            Some(rail) => match &mut rail.port {
                $crate::core::rail::Carrier::Vi(port) => Some(port),
                $crate::core::rail::Carrier::Other(_) => None,
            },
            None => None,
        }
    };
}
pub(super) use plain_port;
