//! Numbers of bytes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `64`, `4K`, `1M`, `2GiB`. The units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Not a [`Size`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size such as 64, 4K, 1M or 2G (units are powers of 1024)")]
pub struct BadSize(String);

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        let bad = || BadSize(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, bytes, again) in [
            ("0", 0, "0"),
            ("64", 64, "64"),
            ("4K", 4096, "4K"),
            ("1M", 1 << 20, "1M"),
            ("1MiB", 1 << 20, "1M"),
            ("3g", 3 << 30, "3G"),
            ("1500b", 1500, "1500"),
            ("1536", 1536, "1536"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, again));
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in
            ["", "K", "-1", "+1", "1.5K", "4 K", "1X", "99999999999999999999", "18446744073709551615K"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
