//! How a command in a guest ended, and the exit status that says so.

/// How a command in a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited by itself with this code.
    Exited(u8),
    /// A signal ended it.
    Signalled(u8),
}

impl Status {
    /// Reads what wait(2) reports.
    pub fn from_wait(raw: i32) -> Self {
        match raw & 0x7f {
            0 => Status::Exited((raw >> 8 & 0xff) as u8),
            signal => Status::Signalled(signal as u8),
        }
    }

    /// The shell's convention: the code itself, or 128 + the signal.
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => code,
            Status::Signalled(signal) => 128 | signal,
        }
    }

    /// Whether the command exited with 0.
    pub fn success(self) -> bool {
        self == Status::Exited(0)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Exited(code) => write!(f, "status {code}"),
            Status::Signalled(signal) => write!(f, "signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_signals_map_as_a_shell_maps_them() {
        for (raw, code) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143), (11 | 0x80, 139)] {
            assert_eq!(Status::from_wait(raw).code(), code, "raw {raw:#x}");
        }
        assert!(Status::from_wait(0).success());
        assert!(!Status::from_wait(9).success());
    }
}
