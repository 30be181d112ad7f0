//! Negotiation: versions, and capabilities as JSON text.

use serde_json::{Map, Value};
use zerocopy::{FromBytes, IntoBytes};

use super::{ADVERTISED_FDS, MAX_DATA, Version};

/// The version that is spoken here.
pub const MAJOR: u16 = 0;
/// Its minor part.
pub const MINOR: u16 = 0;

/// What one side can take, as its VERSION message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Most file descriptors in a message to it.
    pub max_msg_fds: usize,
    /// Most bytes of data in a message.
    pub max_data_xfer_size: usize,
    /// Most DMA mappings at a time.
    pub max_dma_maps: u64,
    /// Page sizes of DMA mappings, or'ed.
    pub pgsizes: u64,
    /// Whether REGION_WRITE_MULTI is understood.
    pub write_multiple: bool,
}

impl Capabilities {
    /// What either side of ours can take.
    pub fn ours() -> Self {
        Self {
            max_msg_fds: ADVERTISED_FDS,
            max_data_xfer_size: MAX_DATA,
            max_dma_maps: 65535,
            pgsizes: 4096,
            write_multiple: true,
        }
    }

    /// What a peer can take that does not say.
    fn unsaid() -> Self {
        Self {
            max_msg_fds: 1,
            max_data_xfer_size: MAX_DATA,
            max_dma_maps: 65535,
            pgsizes: 4096,
            write_multiple: false,
        }
    }
}

/// Why a VERSION message is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// It ends before its version does.
    #[error("it has {0} bytes and not the 4 of a version")]
    Short(usize),
    /// The text is not JSON, or not an object with the fields that it should have.
    #[error("its capabilities cannot be read: {0}")]
    Text(String),
}

/// A VERSION message: a client's proposal or a server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Major and minor version.
    pub version: (u16, u16),
    /// What the sender can take.
    pub capabilities: Capabilities,
}

impl Proposal {
    /// Ours.
    pub fn ours() -> Self {
        Self { version: (MAJOR, MINOR), capabilities: Capabilities::ours() }
    }

    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let c = &self.capabilities;
        let mut named = Map::new();
        named.insert("max_msg_fds".to_owned(), c.max_msg_fds.into());
        named.insert("max_data_xfer_size".to_owned(), c.max_data_xfer_size.into());
        named.insert("max_dma_maps".to_owned(), c.max_dma_maps.into());
        named.insert("pgsizes".to_owned(), c.pgsizes.into());
        if c.write_multiple {
            named.insert("write_multiple".to_owned(), true.into());
        }
        let text = Value::Object(Map::from_iter([("capabilities".to_owned(), Value::Object(named))]));
        let mut bytes = Version { major: self.version.0, minor: self.version.1 }.as_bytes().to_vec();
        bytes.extend_from_slice(text.to_string().as_bytes());
        bytes.push(0);
        bytes
    }

    /// Reads a payload. What it does not say has the value that the specification gives it.
    ///
    /// # Errors
    /// Too short, no JSON, or fields of another type.
    pub fn parse(bytes: &[u8]) -> Result<Self, VersionError> {
        let (version, text) =
            Version::read_from_prefix(bytes).map_err(|_| VersionError::Short(bytes.len()))?;
        // The text ends at its NUL; some peers leave that out, or send nothing at all.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let capabilities = match text {
            [] => Capabilities::unsaid(),
            text => parse_text(text)?,
        };
        Ok(Self { version: (version.major, version.minor), capabilities })
    }
}

fn parse_text(text: &[u8]) -> Result<Capabilities, VersionError> {
    let value: Value = serde_json::from_slice(text).map_err(|e| VersionError::Text(e.to_string()))?;
    let object = value.as_object().ok_or_else(|| VersionError::Text("it is no object".to_owned()))?;
    let mut found = Capabilities::unsaid();
    let Some(named) = object.get("capabilities") else { return Ok(found) };
    let named =
        named.as_object().ok_or_else(|| VersionError::Text("\"capabilities\" is no object".to_owned()))?;
    let number = |name: &str| match named.get(name) {
        None => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or_else(|| VersionError::Text(format!("{name:?} is {value}, and no number"))),
    };
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    if let Some(n) = number("max_msg_fds")? {
        found.max_msg_fds = size(n);
    }
    if let Some(n) = number("max_data_xfer_size")? {
        found.max_data_xfer_size = size(n);
    }
    if let Some(n) = number("max_dma_maps")? {
        found.max_dma_maps = n;
    }
    if let Some(n) = number("pgsizes")? {
        found.pgsizes = n;
    }
    if let Some(value) = named.get("write_multiple") {
        found.write_multiple = value
            .as_bool()
            .ok_or_else(|| VersionError::Text(format!("\"write_multiple\" is {value}, and no boolean")))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_text(text: &str) -> Vec<u8> {
        let mut bytes = vec![0, 0, 1, 0];
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn reads_what_it_writes() {
        let ours = Proposal::ours();
        assert_eq!(Proposal::parse(&ours.to_bytes()), Ok(ours));
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        for text in
            ["", "\0", "{}", "{}\0", "{\"capabilities\":{}}\0", "{\"capabilities\":{\"other\":[1]}}\0"]
        {
            let parsed = Proposal::parse(&with_text(text)).unwrap();
            assert_eq!(parsed.version, (0, 1), "{text}");
            assert_eq!(parsed.capabilities, Capabilities::unsaid(), "{text}");
        }
    }

    #[test]
    fn as_qemu_says_it() {
        let text = "{\"capabilities\": {\"max_msg_fds\": 8, \"max_data_xfer_size\": 1048576, \
                    \"migration\": {\"pgsize\": 4096}, \"pgsizes\": 4096, \"max_dma_maps\": 65535, \
                    \"write_multiple\": true}}\0";
        let parsed = Proposal::parse(&with_text(text)).unwrap().capabilities;
        assert_eq!(parsed, Capabilities { max_msg_fds: 8, ..Capabilities::ours() });
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert_eq!(Proposal::parse(&[0, 0, 0]), Err(VersionError::Short(3)));
        for text in [
            "x",
            "[1]",
            "{\"capabilities\":1}",
            "{\"capabilities\":{\"max_msg_fds\":-1}}",
            "{\"capabilities\":{\"write_multiple\":1}}",
            "\u{1}\0",
        ] {
            assert!(matches!(Proposal::parse(&with_text(text)), Err(VersionError::Text(_))), "{text}");
        }
    }
}
