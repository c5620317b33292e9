//! Whether every byte is where it was copied to.
//!
//! What the source held is noted before the load: a copy that went the wrong way round would leave both equal.

use super::gate::Gate;
use super::pattern::Pattern;
use super::target::{Buffer, Target};
use crate::failure::Failure;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

/// What the source of a job held: a hash of each block.
#[derive(Debug)]
pub(super) struct Held(Vec<u64>);

impl Held {
    /// Reads the source of a job.
    pub(super) fn read(target: &Target, pattern: &Pattern) -> Result<Self, Failure> {
        let mut buffer = Buffer::new(pattern.bs() as usize);
        (0..pattern.blocks())
            .map(|block| hash(target, pattern.source_of(block), &mut buffer))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Blocks that are like another: of these a misplaced one would not be noticed.
    pub(super) fn alike(&self) -> u64 {
        let different: HashSet<_> = self.0.iter().collect();
        (self.0.len() - different.len()) as u64
    }

    /// Compares source and destination with what the source held. Gives the number of blocks that were copied.
    pub(super) fn check(&self, target: &Target, pattern: &Pattern, gate: &Gate) -> Result<u64, Failure> {
        let mut buffer = Buffer::new(pattern.bs() as usize);
        for (block, held) in (0..).zip(&self.0) {
            let at = pattern.source_of(block);
            if hash(target, at, &mut buffer)? != *held {
                return Err(differs("the source has changed", at));
            }
        }
        let came_from = came_from(pattern, gate.progress());
        for (block, from) in (0..).zip(&came_from) {
            let Some(from) = from else { continue };
            let at = pattern.destination_of(block);
            if hash(target, at, &mut buffer)? != self.0[*from as usize] {
                return Err(differs(
                    &format!("not what was at byte {} of the source", pattern.source_of(*from)),
                    at,
                ));
            }
        }
        Ok(came_from.iter().flatten().count() as u64)
    }
}

/// For each block of the destination the block of the source that it has last been copied from.
fn came_from(pattern: &Pattern, (pass, commands): (u64, u64)) -> Vec<Option<u64>> {
    let mut from = vec![None; pattern.blocks() as usize];
    let before = pass.checked_sub(1).map(|pass| (pass, pattern.commands()));
    for (pass, commands) in before.into_iter().chain([(pass, commands)]) {
        for (source, destination) in (0..commands).flat_map(|command| pattern.pairs(pass, command)) {
            from[destination as usize] = Some(source);
        }
    }
    from
}

fn hash(target: &Target, at: u64, buffer: &mut Buffer) -> Result<u64, Failure> {
    target.read(at, buffer.bytes_mut())?;
    let mut hasher = DefaultHasher::new();
    hasher.write(buffer.bytes_mut());
    Ok(hasher.finish())
}

fn differs(what: &str, at: u64) -> Failure {
    Failure::failed(format!("verify: byte {at} and what follows: {what}"))
        .hint("somebody else wrote there meanwhile, or a copy is wrong")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::options::CopyOptions;
    use crate::copy::stats::Stats;
    use crate::failure::Exit;
    use clap::{Args, FromArgMatches};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::time::Instant;

    const SIZE: u64 = 64 << 10;

    /// A file of blocks that differ, a load on it, and what its source holds.
    struct Load {
        file: File,
        target: Target,
        pattern: Pattern,
        gate: Gate,
        held: Held,
    }

    impl Load {
        fn new(name: &str, line: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ublk-bench-{name}-{}", std::process::id()));
            let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            (0..SIZE / 512).for_each(|n| file.write_all_at(&[n as u8; 512], n * 512).unwrap());
            let command = CopyOptions::augment_args(clap::Command::new("copy"));
            let words = ["copy", "--filename=x", "--bs=4k"].into_iter().chain(line.split_whitespace());
            let options =
                CopyOptions::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap();
            let pattern = Pattern::of_jobs(&options, SIZE).unwrap().remove(0);
            let gate = Gate::new(&options, pattern.commands(), Instant::now());
            let target = Target::of_file(file.try_clone().unwrap(), SIZE);
            let held = Held::read(&target, &pattern).unwrap();
            Self { file, target, pattern, gate, held }
        }

        fn run(&self) {
            let mut buffer = Buffer::new(self.pattern.bs() as usize);
            while let Some(ticket) = self.gate.take() {
                let segments: Vec<_> = self.pattern.segments(ticket.pass, ticket.command).collect();
                self.target.copy(&segments, self.pattern.bs(), None, &mut buffer, &mut Stats::new()).unwrap();
                self.gate.done(true);
            }
        }

        fn check(&self) -> Result<u64, Failure> {
            self.held.check(&self.target, &self.pattern, &self.gate)
        }
    }

    #[test]
    fn what_was_copied_is_found_after_any_number_of_passes() {
        for (line, blocks) in [
            ("", 8),
            ("--number_ios=3", 3),
            ("--rw=randcopy --ranges=2 --time_based --runtime=1m --number_ios=11", 8),
            ("--time_based --runtime=1m --number_ios=21", 8),
        ] {
            let load = Load::new("found", line);
            load.run();
            assert_eq!(load.check(), Ok(blocks), "{line}");
        }
    }

    #[test]
    fn a_byte_that_differs_is_found() {
        for at in [SIZE / 2, SIZE - 1] {
            let load = Load::new("differs", "--rw=randcopy");
            load.run();
            let mut byte = [0];
            load.file.read_exact_at(&mut byte, at).unwrap();
            load.file.write_all_at(&[!byte[0]], at).unwrap();
            assert_eq!(load.check().unwrap_err().exit, Exit::Failed, "{at}");
        }
    }

    #[test]
    fn a_copy_the_wrong_way_round_is_found() {
        let load = Load::new("backwards", "--number_ios=1");
        load.gate.take().unwrap();
        load.gate.done(true);
        let mut bytes = [0; 4096];
        load.file.read_exact_at(&mut bytes, load.pattern.destination_of(0)).unwrap();
        load.file.write_all_at(&bytes, load.pattern.source_of(0)).unwrap();
        assert!(load.check().unwrap_err().message.contains("the source has changed"));
    }

    #[test]
    fn blocks_that_are_alike_are_counted() {
        let load = Load::new("alike", "");
        assert_eq!(load.held.alike(), 0);
        load.file.write_all_at(&[1; 8192], load.pattern.source_of(2)).unwrap();
        assert_eq!(Held::read(&load.target, &load.pattern).unwrap().alike(), 1);
    }
}
