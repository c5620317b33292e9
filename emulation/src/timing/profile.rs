//! Ready timings by name. Each says where its numbers come from; none is a promise about a product.

use super::config::{HostLink, Latencies, Media, Rate, Timing};
use super::disk::Disk;
use super::flash::Flash;
use super::latency::Latency;
use crate::time::Nanos;
use crate::units::Bytes;

/// A ready timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is like.
    pub about: &'static str,
    /// Where its numbers come from.
    pub source: &'static str,
    /// Everything but a seek or a page: the time of a read and of a write in the controller.
    controller: (Nanos, Nanos),
    bandwidth: Option<Rate>,
    link: Option<HostLink>,
    media: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// 8 channels of 4 dies.
    Buffered,
    /// 8 channels of 16 dies.
    Unbuffered,
    Spinning,
}

const NVMEVIRT_ZN540: &str = "NVMeVirt ssd_config.h, WD_ZN540: 8 channels of 450 MB/s, 4 dies each, 96 KiB programmed at \
     once in 561 us, 58 us a read, 13 us and 5.6 us of firmware a read and a write, 10 pages of buffer, 3,050 MB/s; \
     erase 2 ms is FEMU's default, since NVMeVirt has none";

/// Every profile.
pub const PROFILES: [Profile; 4] = [
    Profile {
        name: "tlc-ssd",
        about: "a TLC drive with a write buffer",
        source: NVMEVIRT_ZN540,
        controller: (Nanos(13_000), Nanos(5_600)),
        bandwidth: Some(Rate::mb(3_050)),
        link: None,
        media: Kind::Buffered,
    },
    Profile {
        name: "zns",
        about: "a zoned TLC drive without a write buffer",
        source: "NVMeVirt ssd_config.h, ZNS_PROTOTYPE: 8 channels of 800 MB/s, 16 dies each, 128 KiB programmed at once \
                 in 1,913.64 us, 40.95 us a read, 32.15 us of firmware a read, 3,200 MB/s; erase 2 ms is FEMU's default",
        controller: (Nanos(32_150), Nanos(0)),
        bandwidth: Some(Rate::mb(3_200)),
        link: None,
        media: Kind::Unbuffered,
    },
    Profile {
        name: "hdd",
        about: "a spinning disk of 7,200 turns a minute, its write cache off",
        source: "seeks and turn: Western Digital Ultrastar DC HC310 OEM specification, 4.5.1, read, typical (0.23 ms, \
                 7.4 ms, 8.33 ms); rate: Seagate Constellation ES.3 SAS manual, 4.1.2, the most sustained (175 MB/s)",
        controller: (Nanos(0), Nanos(0)),
        bandwidth: None,
        link: None,
        media: Kind::Spinning,
    },
    Profile {
        name: "remote",
        about: "the drive of tlc-ssd behind Ethernet of 1 Gbit/s",
        source: "link: TCP over 1 Gbit/s Ethernet carries 1,448 of 1,538 bytes, 117.6 MB/s; round trip within a \
                 datacenter 500 us, of the latency numbers by Jeff Dean (2009); drive: that of tlc-ssd",
        controller: (Nanos(13_000), Nanos(5_600)),
        bandwidth: Some(Rate::mb(3_050)),
        link: Some(HostLink { round_trip: Nanos(500_000), bandwidth: Rate(117_685_305) }),
        media: Kind::Buffered,
    },
];

/// The profile of a name.
pub fn named(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

impl Profile {
    /// The timing it stands for.
    pub fn timing(&self) -> Timing {
        let (read, write) = self.controller;
        Timing {
            latency: Latencies {
                read: Latency::Fixed(read),
                write: Latency::Fixed(write),
                ..Latencies::default()
            },
            bandwidth: self.bandwidth,
            link: self.link,
            queue_depth: None,
            media: self.media(),
            seed: 0,
        }
    }

    fn media(&self) -> Media {
        let buffered = Flash {
            channels: 8,
            dies_per_channel: 4,
            page: Bytes::kib(96),
            read: Nanos(58_000),
            program: Nanos(561_000),
            erase: Nanos(2_000_000),
            channel: Rate::mb(450),
            reset_blocks: 1,
            finish: Nanos(561_000),
            buffer: Bytes::kib(960),
            power_loss_protection: false,
        };
        match self.media {
            Kind::Buffered => Media::Flash(buffered),
            Kind::Unbuffered => Media::Flash(Flash {
                dies_per_channel: 16,
                page: Bytes::kib(128),
                read: Nanos(40_950),
                program: Nanos(1_913_640),
                channel: Rate::mb(800),
                finish: Nanos(1_913_640),
                buffer: Bytes(0),
                ..buffered
            }),
            Kind::Spinning => Media::Disk(Disk {
                track_seek: Nanos(230_000),
                average_seek: Nanos(7_400_000),
                revolution: Nanos(8_333_333),
                transfer: Rate::mb(175),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_name_and_is_valid() {
        for profile in &PROFILES {
            assert_eq!(named(profile.name), Some(profile));
            profile.timing().validate().unwrap();
        }
        assert_eq!(named("floppy"), None);
    }
}
