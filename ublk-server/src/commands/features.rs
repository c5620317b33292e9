//! `ublk features`.

use super::{Failure, json};
use crate::cli::JsonArgs;
use crate::ublk::control::{self, FEATURE_NAMES};
use crate::ublk::native;
use serde::Serialize;
use std::fmt::Write;

#[derive(Debug, Serialize)]
struct Features {
    features: u64,
    names: Vec<String>,
    copy_doors: &'static [&'static str],
}

pub(super) fn run(args: &JsonArgs) -> Result<String, Failure> {
    let features = control::features()?;
    let copy_doors = copy_doors(features);
    Ok(if args.json {
        json(Features { features, names: names(features), copy_doors })
    } else {
        text(features)
    })
}

/// The doors that can take copies to a disk; the native one needs the driver.
fn copy_doors(features: u64) -> &'static [&'static str] {
    if features & native::FEATURE == 0 { &["api"] } else { &["api", "native"] }
}

/// The names of the bits that are set, `unknown` for those without one.
fn names(features: u64) -> Vec<String> {
    let set = (0..u64::BITS as usize).filter(|bit| features & 1 << bit != 0);
    set.map(|bit| FEATURE_NAMES.get(bit).copied().unwrap_or("unknown").to_string()).collect()
}

fn text(features: u64) -> String {
    let mut out = format!("ublk_drv features: 0x{features:x}\n");
    for bit in (0..u64::BITS as usize).filter(|bit| features & 1 << bit != 0) {
        let name = FEATURE_NAMES.get(bit).copied().unwrap_or("unknown");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\t{name:<20}: 0x{:x}", 1u64 << bit);
    }
    let _ = writeln!(out, "copy doors: {}", copy_doors(features).join(" "));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_has_a_line() {
        let text = text(1 | 1 << 7 | 1 << 40);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ublk_drv features: 0x10000000081");
        assert_eq!(lines[1], "\tSUPPORT_ZERO_COPY   : 0x1");
        assert_eq!(lines[2], "\tUSER_COPY           : 0x80");
        assert_eq!(lines[3], "\tunknown             : 0x10000000000");
        assert_eq!(lines[4..], ["copy doors: api"]);
    }

    #[test]
    fn the_native_door_needs_the_driver() {
        let text = text(1 << 7 | native::FEATURE);
        assert!(text.ends_with("\tCOPY                : 0x200000\ncopy doors: api native\n"), "{text}");
    }
}
