//! Sizes as people write them: `K M G T` are binary; an optional `iB` or `B` behind the letter changes nothing.

use emulation::{Bytes, Nanos};

/// Reads a size: a whole number and an optional suffix (`4096`, `64K`, `1G`, `1GiB`).
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" | "kb" => 10,
        "m" | "mib" | "mb" => 20,
        "g" | "gib" | "gb" => 30,
        "t" | "tib" | "tb" => 40,
        _ => return Err(format!("unknown suffix \"{suffix}\": K, M, G and T are known")),
    };
    let number: u64 =
        number.parse().map_err(|_| "not a size: a whole number, then K, M, G or T".to_string())?;
    number.checked_mul(1 << shift).map(Bytes).ok_or_else(|| "too large: at most 16777215T".to_string())
}

/// Reads a duration: a whole number and `us`, `ms` or `s`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_duration(text: &str) -> Result<Nanos, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let nanos = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("\"{text}\": a duration is a whole number and us, ms or s")),
    };
    let number: u64 = number.parse().map_err(|_| format!("\"{text}\": a whole number, then us, ms or s"))?;
    number.checked_mul(nanos).map(Nanos).ok_or_else(|| format!("\"{text}\": too long"))
}

/// A size as serde reads it: a number of bytes or a text with a suffix. Written as a number.
pub mod size {
    use super::{Bytes, parse_size};
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    /// Writes the number of bytes.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(bytes.0)
    }

    /// Reads a number of bytes, or a size as [`parse_size`] reads it.
    ///
    /// # Errors
    /// Those of the deserializer and of [`parse_size`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }

    struct SizeVisitor;

    impl Visitor<'_> for SizeVisitor {
        type Value = Bytes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size: a number of bytes or a text such as \"64K\"")
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<Bytes, E> {
            Ok(Bytes(value))
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
            u64::try_from(value).map(Bytes).map_err(|_| E::custom("a size cannot be negative"))
        }

        fn visit_str<E: Error>(self, value: &str) -> Result<Bytes, E> {
            parse_size(value).map_err(|why| E::custom(format!("{value}: {why}")))
        }
    }
}

/// [`size`] for a value that may be missing.
pub mod optional_size {
    use super::{Bytes, size};
    use serde::{Deserializer, Serializer};

    /// Writes the number of bytes, or nothing.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => size::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a size that is there.
    ///
    /// # Errors
    /// Those of [`size::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        deserializer.deserialize_option(OptionVisitor)
    }

    struct OptionVisitor;

    impl<'de> serde::de::Visitor<'de> for OptionVisitor {
        type Value = Option<Bytes>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a size or nothing")
        }

        fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            size::deserialize(deserializer).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512b", 512),
            ("4K", 4096),
            ("4KiB", 4096),
            ("1m", 1 << 20),
            ("3G", 3 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn durations_have_a_unit() {
        for (text, nanos) in [("0us", 0), ("5ms", 5_000_000), ("80us", 80_000), ("2s", 2_000_000_000)] {
            assert_eq!(parse_duration(text), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["", "5", "ms", "-1s", "1.5s", "1h", "99999999999999999999s", "18446744074s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_reason() {
        for text in ["", "K", "-1", "1.5G", "4 K", "4P", "0x10", "99999999999999999999", "16777216T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
