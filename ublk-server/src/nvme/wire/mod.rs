//! What goes over the wire: the structures of the NVMe, NVMe over Fabrics and NVMe/TCP specifications.
//!
//! Each structure is laid out by `zerocopy` and its size is asserted when it is compiled. Field names are those of
//! the specifications, in lower case. Everything here is pure: bytes in, values out.

// A wire field is as wide as the wire says: a cast that could lose bits has no place here.
#![deny(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap)]

pub mod command;
pub mod copy;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod pdu;
pub mod status;
pub mod zone;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A structure with every byte 0.
pub fn zeroed<T: FromZeros>() -> T {
    T::new_zeroed()
}

/// The structure at the start of `bytes`; `None` when there are fewer bytes than it has.
pub fn read<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

/// The bytes of a structure.
pub fn to_vec<T: IntoBytes + Immutable>(value: &T) -> Vec<u8> {
    value.as_bytes().to_vec()
}

/// Text in a field that is padded with `pad`; what does not fit is cut off.
pub fn text<const N: usize>(text: &str, pad: u8) -> [u8; N] {
    let mut field = [pad; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// The text of a field that ends with a zero byte or fills it; `None` when it is not UTF-8.
pub fn text_of(field: &[u8]) -> Option<&str> {
    let len = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..len]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_cut_and_read_back() {
        assert_eq!(text::<4>("ab", b' '), *b"ab  ");
        assert_eq!(text::<2>("abc", 0), *b"ab");
        assert_eq!(text_of(b"ab\0c"), Some("ab"));
        assert_eq!(text_of(b"abc"), Some("abc"));
        assert_eq!(text_of(b"\xff"), None);
    }
}
