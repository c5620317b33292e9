//! The second phase of a context: every bio is at its disk, and one command carries them all.

use super::bio::Side;
use super::blk_mq::{Ends, HostRequest};
use super::chunk::{ChunkId, Parked};
use super::copier::{Copier, segments};
use super::defect::Defect;
use super::design::{commands, pair_up_on};
use super::stack::Node;
use crate::request::CopySegment;
use crate::status::BlkStatus;

impl Copier {
    /// Every bio of a context is at its disk or refused: its command goes, or all of it ends.
    pub(super) fn translated(&mut self, chunk: ChunkId) {
        let context = &self.chunks[&chunk];
        if context.untranslated > 0 {
            return;
        }
        let mut parked = context.parked.clone();
        let status = context.status;
        parked.sort_by_key(|bio| (bio.side, bio.index));
        let bios = vec![chunk; parked.len()];
        match self.context_command(&parked, status) {
            Ok((disk, segments)) => {
                let mut ends = Ends::new();
                self.mq.dispatch(HostRequest::command(disk, segments, bios), &self.stack, &mut ends);
                self.ended(ends);
            }
            Err(status) => bios.into_iter().for_each(|chunk| self.end(chunk, status)),
        }
    }

    fn context_command(
        &self,
        parked: &[Parked],
        status: BlkStatus,
    ) -> Result<(Node, Vec<CopySegment>), BlkStatus> {
        if !status.is_ok() {
            return Err(status);
        }
        let of = |side| {
            let mine = parked.iter().filter(move |bio| bio.side == side);
            mine.map(|bio| (bio.disk, bio.range)).collect::<Vec<_>>()
        };
        let (sources, destinations) = (of(Side::Source), of(Side::Destination));
        let disk = destinations[0].0;
        if destinations.iter().any(|(other, _)| *other != disk) {
            // One command has one destination namespace.
            return Err(BlkStatus::NotSupp);
        }
        let limits = self.stack.copy_limits(disk, self.design);
        let mut all = Vec::new();
        for (from, _, piece) in pair_up_on(&sources, &destinations) {
            let cut = if self.defects.has(Defect::LimitsIgnored) {
                vec![vec![piece]]
            } else {
                commands(&[piece], &limits)
            };
            all.extend(cut.into_iter().flat_map(|command| segments(self.stack.disk(from).volume, &command)));
        }
        let fits = all.len() <= limits.segments as usize || self.defects.has(Defect::LimitsIgnored);
        if fits { Ok((disk, all)) } else { Err(BlkStatus::NotSupp) }
    }
}
