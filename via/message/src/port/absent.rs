//! A rail that this rank does not have: it keeps the others' numbers the same at all ranks.

use std::os::fd::RawFd;

use super::{Buffer, Event, Exposure, Hello, LinkId, Packet, Port, Wake};
use crate::span::Span;
use crate::{Error, Result};

/// The port of a rail that this rank does not have.
pub(crate) struct Absent;

fn absent() -> Error {
    Error::Config("this rank does not have that rail".to_owned())
}

impl Port for Absent {
    fn address(&self) -> String {
        String::new()
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn connect(&mut self, _: LinkId, _: &str, _: Hello) -> Result<()> {
        Err(absent())
    }

    fn buffer(&mut self, _: LinkId) -> Option<Buffer> {
        None
    }

    fn release(&mut self, _: LinkId, _: u32) {}

    fn send(&mut self, _: LinkId, _: Buffer, _: usize, _: bool) -> Result<()> {
        Err(absent())
    }

    unsafe fn expose(&mut self, _: LinkId, _: Span) -> Result<Exposure> {
        Err(absent())
    }

    fn conceal(&mut self, _: LinkId, _: u64) {}

    unsafe fn put(&mut self, _: LinkId, _: u64, _: Span, _: &[u8; 16], _: u64) -> Result<bool> {
        Ok(false)
    }

    fn poll(&mut self, _: &mut Vec<Event>) -> Result<()> {
        Ok(())
    }

    fn give_back(&mut self, _: LinkId, _: Packet) {}

    fn is_flushed(&self, _: LinkId) -> bool {
        true
    }

    fn leave(&mut self, _: LinkId) {}

    fn arm(&mut self, _: &mut Vec<RawFd>) -> Result<Wake> {
        Ok(Wake::Told)
    }
}
