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
