//! Which bytes each command copies, from its number alone.

use super::options::{CopyOptions, Rw};
use crate::failure::Failure;

/// One run of bytes to copy, `bs` long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) source: u64,
    pub(super) destination: u64,
}

/// The copies of one job: from one region to another of the same length, apart from it. A *pass* copies to each
/// block of the destination once. Where a block comes from changes from pass to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    source: u64,
    destination: u64,
    bs: u64,
    ranges: u64,
    /// A multiple of `ranges`.
    blocks: u64,
    random: Option<u64>,
    /// Destinations of a command follow each other.
    together: bool,
}

impl Pattern {
    /// The patterns of all jobs on a disk of `disk_size` bytes.
    pub(super) fn of_jobs(options: &CopyOptions, disk_size: u64) -> Result<Vec<Self>, Failure> {
        for (what, value, most) in [
            ("ranges", options.ranges, 65_536),
            ("iodepth", options.iodepth, 1024),
            ("numjobs", options.numjobs, 1024),
        ] {
            if !(1..=most).contains(&value) {
                return Err(Failure::usage(format!("{what} {value}: must be from 1 to {most}")));
            }
        }
        let threads = u64::from(options.iodepth) * u64::from(options.numjobs);
        if threads > 4096 {
            return Err(Failure::usage(format!("{threads} commands at the same time: at most 4096")));
        }
        let (bs, ranges, jobs) = (options.bs.0, u64::from(options.ranges), u64::from(options.numjobs));
        if bs == 0 || !bs.is_multiple_of(512) {
            return Err(Failure::usage(format!("bs {bs}: must be a multiple of 512 and not 0")));
        }
        let offset = options.offset.0;
        let size = options.size.map_or(disk_size.saturating_sub(offset) / 2, |size| size.0);
        let blocks = size / bs / jobs / ranges * ranges;
        if blocks == 0 {
            let why =
                format!("size {size}: less than one command for each job ({jobs} of {ranges} x {bs} bytes)");
            return Err(Failure::usage(why).hint("give a larger --size, or fewer --ranges or --numjobs"));
        }
        let used = blocks * jobs * bs;
        let destination = options.dest_offset.map_or(offset.saturating_add(size), |to| to.0);
        for (what, start) in [("offset", offset), ("dest_offset", destination)] {
            if start.checked_add(used).is_none_or(|end| end > disk_size) {
                let why = format!(
                    "{what} {start}: {used} bytes from there pass the end of the disk at {disk_size}"
                );
                return Err(Failure::usage(why).hint("give a smaller --size"));
            }
        }
        if offset < destination + used && destination < offset + used {
            let why = format!("{used} bytes from {offset} on overlap those from {destination} on");
            return Err(
                Failure::usage(why).hint("a load reads one region and writes another: give a --dest_offset")
            );
        }
        let of_job = |job: u64| Self {
            source: offset + job * blocks * bs,
            destination: destination + job * blocks * bs,
            bs,
            ranges,
            blocks,
            random: (options.rw == Rw::RandCopy).then(|| mix(options.randseed ^ mix(job))),
            together: options.door.way().is_some(),
        };
        Ok((0..jobs).map(of_job).collect())
    }

    /// Commands of a pass.
    pub(super) fn commands(&self) -> u64 {
        self.blocks / self.ranges
    }

    /// Bytes of a segment.
    pub(super) fn bs(&self) -> u64 {
        self.bs
    }

    /// Blocks of the source, and of the destination.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where a block of the source lies.
    pub(super) fn source_of(&self, block: u64) -> u64 {
        self.source + block * self.bs
    }

    /// Where a block of the destination lies.
    pub(super) fn destination_of(&self, block: u64) -> u64 {
        self.destination + block * self.bs
    }

    /// What a command of a pass copies.
    pub(super) fn segments(&self, pass: u64, command: u64) -> impl Iterator<Item = Segment> + '_ {
        self.pairs(pass, command)
            .map(|(from, to)| Segment { source: self.source_of(from), destination: self.destination_of(to) })
    }

    /// The same as numbers of blocks: from, to.
    pub(super) fn pairs(&self, pass: u64, command: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = command * self.ranges;
        (first..first + self.ranges).map(move |step| match self.random {
            // One command further on in each pass, so that a pass does not repeat what is there.
            None => ((step + pass % self.blocks * self.ranges) % self.blocks, step),
            Some(seed) => {
                let key = mix(seed ^ mix(pass));
                let to = match self.together {
                    true => shuffled(command, self.commands(), !key) * self.ranges + (step - first),
                    false => shuffled(step, self.blocks, !key),
                };
                (shuffled(step, self.blocks, key), to)
            }
        })
    }
}

/// The number of `step` in an order of all numbers below `count` that `key` chooses: a Feistel network over the
/// next power of four, walked until it is back below `count`.
fn shuffled(step: u64, count: u64, key: u64) -> u64 {
    let bits = (u64::BITS - (count - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << bits) - 1;
    let mut at = step;
    loop {
        let (mut left, mut right) = (at >> bits, at & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (mix(key ^ mix(round << 32 | right)) & mask));
        }
        at = left << bits | right;
        if at < count {
            return at;
        }
    }
}

/// A number in which every bit of `x` has a say (the finalizer of splitmix64).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn options(line: &str) -> CopyOptions {
        let command = CopyOptions::augment_args(clap::Command::new("copy"));
        let words = ["copy", "--filename=x"].into_iter().chain(line.split_whitespace());
        CopyOptions::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn patterns(line: &str, disk_size: u64) -> Result<Vec<Pattern>, Failure> {
        Pattern::of_jobs(&options(line), disk_size)
    }

    #[test]
    fn every_order_has_every_number_once() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            for key in [0, 1, u64::MAX] {
                let mut seen = vec![false; count as usize];
                (0..count).for_each(|step| seen[shuffled(step, count, key) as usize] = true);
                assert!(seen.iter().all(|seen| *seen), "{count} {key}");
            }
        }
    }

    #[test]
    fn a_pass_copies_to_every_block_once_from_every_block_once() {
        for line in [
            "--bs=4k --ranges=3 --numjobs=2",
            "--bs=4k --ranges=3 --numjobs=2 --rw=randcopy --randseed=7",
            "--bs=4k --ranges=3 --numjobs=2 --rw=randcopy --randseed=7 --door=native",
        ] {
            for pattern in patterns(line, 1 << 20).unwrap() {
                for pass in [0, 1, 2, 1 << 40] {
                    let mut from: Vec<_> = (0..pattern.commands())
                        .flat_map(|command| pattern.pairs(pass, command).collect::<Vec<_>>())
                        .collect();
                    let all: Vec<_> = (0..pattern.blocks()).collect();
                    from.sort_unstable_by_key(|pair| pair.0);
                    assert_eq!(from.iter().map(|pair| pair.0).collect::<Vec<_>>(), all);
                    from.sort_unstable_by_key(|pair| pair.1);
                    assert_eq!(from.iter().map(|pair| pair.1).collect::<Vec<_>>(), all);
                }
            }
        }
    }

    #[test]
    fn a_native_command_has_one_destination() {
        let pattern = &patterns("--bs=4k --ranges=5 --rw=randcopy --door=native", 1 << 20).unwrap()[0];
        for command in 0..pattern.commands() {
            let to: Vec<_> = pattern.pairs(3, command).map(|pair| pair.1).collect();
            assert!(to.windows(2).all(|two| two[0] + 1 == two[1]), "{to:?}");
        }
    }

    #[test]
    fn passes_differ() {
        for line in ["--bs=4k", "--bs=4k --rw=randcopy"] {
            let pattern = &patterns(line, 1 << 20).unwrap()[0];
            assert_ne!(pattern.pairs(0, 0).next(), pattern.pairs(1, 0).next(), "{line}");
        }
    }

    #[test]
    fn jobs_share_the_regions_without_meeting() {
        let jobs =
            patterns("--bs=4k --numjobs=3 --size=64k --offset=4k --dest_offset=128k", 1 << 20).unwrap();
        let starts: Vec<_> =
            jobs.iter().map(|job| (job.source_of(0), job.destination_of(0), job.blocks())).collect();
        assert_eq!(starts, [(4096, 131_072, 5), (24_576, 151_552, 5), (45_056, 172_032, 5)]);
    }

    #[test]
    fn the_defaults_are_the_two_halves() {
        let job = &patterns("--bs=64k", 1 << 20).unwrap()[0];
        assert_eq!((job.source_of(0), job.destination_of(0), job.blocks()), (0, 512 << 10, 8));
    }

    #[test]
    fn what_cannot_be_is_refused_as_usage() {
        for line in [
            "--bs=0",
            "--bs=1000",
            "--ranges=0",
            "--iodepth=0",
            "--numjobs=0",
            "--numjobs=1024 --iodepth=1024",
            "--size=4k --bs=8k",
            "--size=600k",
            "--size=512k --dest_offset=256k",
            "--offset=2m",
            "--dest_offset=1m",
            "--size=64k --dest_offset=0",
        ] {
            let failure = patterns(line, 1 << 20).unwrap_err();
            assert_eq!(failure.exit, crate::failure::Exit::Usage, "{line}");
        }
    }
}
