//! How long a disk takes, as people set it: latencies, a bandwidth, and the media, by the name of a profile or as a table.

use crate::units::{optional_size, parse_size};
use emulation::timing::{Disk, Flash, HostLink, Latencies, Latency, Media, PPM, Rate, Timing, profile};
use emulation::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The word that takes a setting back.
pub const NONE: &str = "none";

/// What is set of a disk's timing. Each part is on top of the one before: media, latency, bandwidth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimingConfig {
    /// The latency of operations, as `read=80us,write=20us`; see [`parse_latency`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,
    /// Bytes a second through the controller: a size, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,
    /// What holds the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaConfig>,
}

/// The media of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MediaConfig {
    /// By the name of a profile, or `none`.
    Profile(String),
    /// In numbers.
    Table(Box<MediaTable>),
}

/// Media in numbers. What is not there is as in the profile, or as in `tlc-ssd` and `hdd` for a table of flash or of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaTable {
    /// Begin with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Latencies in the controller, by operation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latency: BTreeMap<String, String>,
    /// Bytes a second through the controller.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bytes>,
    /// The most requests at work at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// Of latencies that chance decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The way to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkTable>,
    /// Flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashTable>,
    /// A spinning disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTable>,
}

/// The way between host and disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// There and back.
    pub round_trip: String,
    /// Bytes a second in each direction.
    #[serde(with = "crate::units::size")]
    pub bandwidth: Bytes,
}

/// Flash with channels and dies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlashTable {
    /// Channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Dies of a channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dies_per_channel: Option<u32>,
    /// What is programmed at once.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub page: Option<Bytes>,
    /// To read a page from its cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    /// To program one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// To erase a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase: Option<String>,
    /// Bytes a second through a channel.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub channel: Option<Bytes>,
    /// Blocks of each die that a zone reset erases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_blocks: Option<u32>,
    /// To finish a zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// The write buffer; 0 for none.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Bytes>,
    /// The buffer outlives a loss of power: a flush need not empty it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_loss_protection: Option<bool>,
}

/// A spinning disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskTable {
    /// A seek to the next track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track_seek: Option<String>,
    /// One on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_seek: Option<String>,
    /// One turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revolution: Option<String>,
    /// Bytes a second from the platter.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Bytes>,
}

/// `--media`: the name of a profile, `none`, or a file with a table.
///
/// # Errors
/// What is wrong with the name or the file.
pub fn parse_media(text: &str) -> Result<MediaConfig, String> {
    let media = if Path::new(text).extension().is_some_and(|extension| extension == "toml") {
        let table = std::fs::read_to_string(text).map_err(|error| error.to_string())?;
        let table = toml::from_str(&table).map_err(|error| error.message().to_string())?;
        MediaConfig::Table(Box::new(table))
    } else {
        MediaConfig::Profile(text.to_string())
    };
    media.timing().map(|_| media)
}

/// `--latency`: `OP=TIME` with commas between, where OP is one of [`Latencies::named`] and TIME is `80us`, `80us~5us`
/// around a mean with a standard deviation, or a table `p50:80us/p99:1ms/max:5ms`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_latency(text: &str) -> Result<Vec<(String, Latency)>, String> {
    let pairs = text.split(',').map(|pair| {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair}: must be OPERATION=TIME"))?;
        if !Latencies::default().named().iter().any(|(known, _)| *known == name) {
            let known = Latencies::default().named().map(|(name, _)| name);
            return Err(format!("{name}: no operation; operations: {}", known.join(" ")));
        }
        Ok((name.to_string(), one_latency(value)?))
    });
    pairs.collect()
}

fn one_latency(text: &str) -> Result<Latency, String> {
    if let Some((mean, deviation)) = text.split_once('~') {
        return Ok(Latency::Normal { mean: parse_time(mean)?, deviation: parse_time(deviation)? });
    }
    if !text.contains(':') {
        return parse_time(text).map(Latency::Fixed);
    }
    let points = text.split('/').map(|point| {
        let (percentile, time) = point.split_once(':').ok_or_else(|| format!("{point}: must be pN:TIME"))?;
        let part = match percentile.strip_prefix('p') {
            _ if percentile == "max" => PPM,
            Some(percent) => {
                parts_per_million(percent).ok_or_else(|| format!("{percentile}: no percentile"))?
            }
            None => return Err(format!("{percentile}: must be pN or max")),
        };
        Ok((part, parse_time(time)?))
    });
    points.collect::<Result<_, _>>().map(Latency::Percentiles)
}

/// Percent with at most four digits behind the point.
fn parts_per_million(percent: &str) -> Option<u32> {
    let (whole, part) = percent.split_once('.').unwrap_or((percent, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || part.len() > 4 || !digits(whole) || !digits(part) {
        return None;
    }
    format!("{whole}{part:0<4}").parse().ok().filter(|part| *part <= PPM)
}

/// A time: a whole number and `ns`, `us`, `ms` or `s`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let nanos: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("{text}: a whole number, then ns, us, ms or s")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text}: a whole number, then ns, us, ms or s"))?;
    number.checked_mul(nanos).map(Nanos).ok_or_else(|| format!("{text}: too long"))
}

impl TimingConfig {
    /// True when nothing is set.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// These settings, changed by those that `patch` has; `none` takes one back.
    #[must_use]
    pub fn changed(&self, patch: &Self) -> Self {
        let text = |old: &Option<String>, new: &Option<String>| {
            new.as_ref().or(old.as_ref()).filter(|text| *text != NONE).cloned()
        };
        let none = MediaConfig::Profile(NONE.to_string());
        Self {
            latency: text(&self.latency, &patch.latency),
            bandwidth: text(&self.bandwidth, &patch.bandwidth),
            media: patch.media.as_ref().or(self.media.as_ref()).filter(|media| **media != none).cloned(),
        }
    }

    /// What they mean; `None`: the disk takes as long as the machine does.
    ///
    /// # Errors
    /// What can never work.
    pub fn timing(&self) -> Result<Option<Box<Timing>>, String> {
        let settings = Self::default().changed(self);
        if settings.is_none() {
            return Ok(None);
        }
        let mut timing = match &settings.media {
            Some(media) => media.timing()?,
            None => Timing::default(),
        };
        if let Some(text) = &settings.latency {
            for (name, latency) in parse_latency(text).map_err(|why| format!("latency {why}"))? {
                set_latency(&mut timing.latency, &name, latency);
            }
        }
        if let Some(text) = &settings.bandwidth {
            let rate = parse_size(text).map_err(|why| format!("bandwidth {text}: {why}"))?;
            timing.bandwidth = Some(Rate(rate.0));
        }
        timing.validate().map_err(|error| error.to_string())?;
        Ok(Some(Box::new(timing)))
    }
}

fn set_latency(latencies: &mut Latencies, name: &str, latency: Latency) {
    let place = match name {
        "read" => &mut latencies.read,
        "write" => &mut latencies.write,
        "flush" => &mut latencies.flush,
        "discard" => &mut latencies.discard,
        "write_zeroes" => &mut latencies.write_zeroes,
        "copy" => &mut latencies.copy,
        "zone_mgmt" => &mut latencies.zone_mgmt,
        _ => &mut latencies.report_zones,
    };
    *place = latency;
}

fn named(name: &str) -> Result<Timing, String> {
    if name == NONE {
        return Ok(Timing::default());
    }
    profile::named(name).map(profile::Profile::timing).ok_or_else(|| {
        let names: Vec<_> = profile::PROFILES.iter().map(|profile| profile.name).collect();
        format!("media {name}: no profile; profiles: {}, or a FILE.toml", names.join(" "))
    })
}

impl MediaConfig {
    fn timing(&self) -> Result<Timing, String> {
        match self {
            Self::Profile(name) => named(name),
            Self::Table(table) => table.timing(),
        }
    }
}

impl MediaTable {
    fn timing(&self) -> Result<Timing, String> {
        let mut timing = named(self.profile.as_deref().unwrap_or(NONE))?;
        for (name, latency) in &self.latency {
            for (name, latency) in parse_latency(&format!("{name}={latency}"))? {
                set_latency(&mut timing.latency, &name, latency);
            }
        }
        timing.bandwidth = self.bandwidth.map(|rate| Rate(rate.0)).or(timing.bandwidth);
        timing.queue_depth = self.queue_depth.or(timing.queue_depth);
        timing.seed = self.seed.unwrap_or(timing.seed);
        if let Some(link) = &self.link {
            let round_trip = parse_time(&link.round_trip)?;
            timing.link = Some(HostLink { round_trip, bandwidth: Rate(link.bandwidth.0) });
        }
        timing.media = match (&self.flash, &self.disk) {
            (Some(_), Some(_)) => return Err("media: a table of flash or of a disk, not both".to_string()),
            (Some(flash), None) => Media::Flash(flash.over(&timing.media)?),
            (None, Some(disk)) => Media::Disk(disk.over(&timing.media)?),
            (None, None) => timing.media,
        };
        Ok(timing)
    }
}

fn time(text: &Option<String>, or: Nanos) -> Result<Nanos, String> {
    text.as_ref().map_or(Ok(or), |text| parse_time(text))
}

impl FlashTable {
    fn over(&self, media: &Media) -> Result<Flash, String> {
        let base = match media {
            Media::Flash(flash) => flash.clone(),
            Media::None | Media::Disk(_) => match named("tlc-ssd")?.media {
                Media::Flash(flash) => flash,
                Media::None | Media::Disk(_) => unreachable!("tlc-ssd is flash"),
            },
        };
        Ok(Flash {
            channels: self.channels.unwrap_or(base.channels),
            dies_per_channel: self.dies_per_channel.unwrap_or(base.dies_per_channel),
            page: self.page.unwrap_or(base.page),
            read: time(&self.read, base.read)?,
            program: time(&self.program, base.program)?,
            erase: time(&self.erase, base.erase)?,
            channel: self.channel.map_or(base.channel, |rate| Rate(rate.0)),
            reset_blocks: self.reset_blocks.unwrap_or(base.reset_blocks),
            finish: time(&self.finish, base.finish)?,
            buffer: self.buffer.unwrap_or(base.buffer),
            power_loss_protection: self.power_loss_protection.unwrap_or(base.power_loss_protection),
        })
    }
}

impl DiskTable {
    fn over(&self, media: &Media) -> Result<Disk, String> {
        let base = match media {
            Media::Disk(disk) => disk.clone(),
            Media::None | Media::Flash(_) => match named("hdd")?.media {
                Media::Disk(disk) => disk,
                Media::None | Media::Flash(_) => unreachable!("hdd is a disk"),
            },
        };
        Ok(Disk {
            track_seek: time(&self.track_seek, base.track_seek)?,
            average_seek: time(&self.average_seek, base.average_seek)?,
            revolution: time(&self.revolution, base.revolution)?,
            transfer: self.transfer.map_or(base.transfer, |rate| Rate(rate.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(latency: Option<&str>, bandwidth: Option<&str>, media: Option<&str>) -> TimingConfig {
        TimingConfig {
            latency: latency.map(str::to_string),
            bandwidth: bandwidth.map(str::to_string),
            media: media.map(|name| MediaConfig::Profile(name.to_string())),
        }
    }

    #[test]
    fn settings_lie_on_top_of_each_other() {
        assert_eq!(TimingConfig::default().timing(), Ok(None));
        let timing =
            config(Some("read=80us,copy=1ms~10us"), Some("1M"), Some("hdd")).timing().unwrap().unwrap();
        assert_eq!(timing.latency.read, Latency::Fixed(Nanos(80_000)));
        let copy = Latency::Normal { mean: Nanos(1_000_000), deviation: Nanos(10_000) };
        assert_eq!(timing.latency.copy, copy);
        assert_eq!(timing.bandwidth, Some(Rate(1 << 20)));
        assert!(matches!(timing.media, Media::Disk(_)));
        for profile in &profile::PROFILES {
            let timing = config(None, None, Some(profile.name)).timing().unwrap().unwrap();
            assert_eq!(*timing, profile.timing());
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name_and_none_takes_back() {
        let all = config(Some("read=1us"), Some("1M"), Some("hdd"));
        let changed = all.changed(&config(None, Some("2M"), Some("none")));
        assert_eq!(changed, config(Some("read=1us"), Some("2M"), None));
        assert!(all.changed(&config(Some("none"), Some("none"), Some("none"))).is_none());
        assert_eq!(config(Some("none"), None, None).timing(), Ok(None));
    }

    #[test]
    fn percentiles_are_a_table() {
        let expected = vec![(500_000, Nanos(80_000)), (999_000, Nanos(1_000_000)), (PPM, Nanos(5_000_000))];
        let parsed = parse_latency("read=p50:80us/p99.9:1ms/max:5ms").unwrap();
        assert_eq!(parsed, [("read".to_string(), Latency::Percentiles(expected))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (latency, bandwidth, media, why) in [
            (Some("read"), None, None, "latency read: must be OPERATION=TIME"),
            (Some("read=80"), None, None, "latency 80: a whole number, then ns, us, ms or s"),
            (Some("read=31s"), None, None, "latency of read, 31000000000 ns: at most 30000000000 ns"),
            (Some("seek=1us"), None, None, "latency seek: no operation; operations: read write flush"),
            (Some("read=p101:1us/max:1us"), None, None, "latency p101: no percentile"),
            (Some("read=p50:1us"), None, None, "percentiles of read: must rise"),
            (None, Some("fast"), None, "bandwidth fast: unknown suffix"),
            (None, Some("1"), None, "bandwidth 1 B/s: at least 65536 B/s"),
            (None, None, Some("floppy"), "media floppy: no profile; profiles: tlc-ssd zns hdd remote"),
        ] {
            let error = config(latency, bandwidth, media).timing().unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_file_has_a_table_over_a_profile() {
        let table: MediaTable = toml::from_str(
            "profile = \"zns\"\nqueue_depth = 7\nbandwidth = \"2G\"\n[latency]\nread = \"5us\"\n\
             [flash]\nchannels = 2\nprogram = \"1ms\"\n[link]\nround_trip = \"10us\"\nbandwidth = \"1G\"\n",
        )
        .unwrap();
        let timing = table.timing().unwrap();
        let Media::Flash(flash) = &timing.media else { panic!("{timing:?}") };
        assert_eq!((flash.channels, flash.dies_per_channel, flash.program), (2, 16, Nanos(1_000_000)));
        assert_eq!((timing.queue_depth, timing.latency.read), (Some(7), Latency::Fixed(Nanos(5_000))));
        assert_eq!(timing.link.unwrap().round_trip, Nanos(10_000));
        toml::from_str::<MediaTable>("[flash]\nchanels = 2\n").unwrap_err();
    }
}
