//! `ublk set`.

use super::{Failure, json, locate};
use crate::cli::SetArgs;
use crate::config::{CopyBackend, CopyModeName};
use crate::control::api::{LimitsPatch, LimitsView};
use crate::state::State;
use crate::timing::{NONE, parse_latency, parse_media};
use crate::units::parse_size;
use clap::ValueEnum;

pub(super) fn run(args: &SetArgs) -> Result<String, Failure> {
    let patch = parse(&args.changes)?;
    let served = locate::served(&State::open()?, &args.disk.target)?;
    let limits: LimitsView = served.client.send("PATCH", &served.path("/limits"), &patch)?;
    Ok(if args.json { json(limits) } else { String::new() })
}

fn parse(changes: &[String]) -> Result<LimitsPatch, Failure> {
    let mut patch = LimitsPatch::default();
    for change in changes {
        let bad = |why: String| Failure::usage(format!("{change}: {why}"));
        let (key, value) = change.split_once('=').ok_or_else(|| bad("not KEY=VALUE".to_string()))?;
        match key {
            "copy" => patch.copy = Some(mode(value).map_err(bad)?),
            "copy-backend" => {
                let backend = CopyBackend::from_str(value, false);
                patch.copy_backend = Some(backend.map_err(|_| bad("must be rw or cfr".to_string()))?);
            }
            "copy-max-bytes" => patch.copy_max_bytes = Some(parse_size(value).map_err(bad)?),
            "copy-max-segment-bytes" => patch.copy_max_segment_bytes = Some(parse_size(value).map_err(bad)?),
            "copy-max-segments" => {
                let number = value.parse().map_err(|_| bad("not a whole number".to_string()))?;
                patch.copy_max_segments = Some(number);
            }
            "latency" if value == NONE => patch.timing.latency = Some(value.to_string()),
            "latency" => {
                parse_latency(value).map_err(bad)?;
                patch.timing.latency = Some(value.to_string());
            }
            "bandwidth" => {
                if value != NONE {
                    parse_size(value).map_err(bad)?;
                }
                patch.timing.bandwidth = Some(value.to_string());
            }
            "media" => patch.timing.media = Some(parse_media(value).map_err(bad)?),
            _ => {
                let known = "copy, copy-backend, copy-max-bytes, copy-max-segment-bytes, copy-max-segments, latency, bandwidth, media";
                return Err(
                    bad("this cannot change while the disk runs".to_string()).hint(format!("keys: {known}"))
                );
            }
        }
    }
    Ok(patch)
}

fn mode(text: &str) -> Result<CopyModeName, String> {
    CopyModeName::from_str(text, false).map_err(|_| "must be remap, memcpy, emulate or off".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::Bytes;

    #[test]
    fn changes_are_parsed_and_others_refused() {
        let changes = ["copy=off", "copy-max-bytes=1M", "copy-max-segments=4"].map(str::to_string);
        let patch = parse(&changes).unwrap();
        assert_eq!(patch.copy, Some(CopyModeName::Off));
        assert_eq!(patch.copy_max_bytes, Some(Bytes::mib(1)));
        assert_eq!((patch.copy_max_segments, patch.copy_max_segment_bytes), (Some(4), None));
        let changes = ["latency=read=80us,write=none", "latency=none", "bandwidth=none", "media=none"];
        assert!(parse(&[changes[0].to_string()]).is_err());
        let patch = parse(&changes[1..].iter().map(|text| (*text).to_string()).collect::<Vec<_>>()).unwrap();
        assert_eq!(patch.timing.bandwidth.as_deref(), Some("none"));
        for change in [
            "copy-backend=dd",
            "latency=read",
            "bandwidth=fast",
            "media=floppy",
            "media=/nowhere.toml",
            "copy",
            "copy=fast",
            "size=1G",
            "copy-max-segments=-1",
            "copy-max-bytes=x",
            "=1",
        ] {
            assert_eq!(parse(&[change.to_string()]).unwrap_err().exit, super::super::Exit::Usage, "{change}");
        }
    }
}
