//! Requests for zoned volumes: most of them such as their zones take, as the model has them.

use super::copies::segment;
use super::workload::Workload;
use emulation::request::ZoneAction;
use emulation::{CopyCommand, Flags, Op, Request, Sector, SectorRange, Sectors, VolumeId};

impl Workload<'_> {
    /// An action on a zone, at times on one that is none.
    pub(super) fn zone(&mut self, id: VolumeId) -> Op {
        let Some(volume) = self.zones.volumes.get(&id) else {
            return match self.prng.below(3) {
                0 => Op::ZoneResetAll,
                1 => Op::ReportZones { from: Sector(0), max: 1 },
                _ => Op::ZoneMgmt { zone: Sector(0), action: ZoneAction::Reset },
            };
        };
        let size = volume.geometry.size.0;
        let zones = volume.zones.len() as u64;
        let mut start = Sector(self.prng.below(zones) * size);
        if self.prng.one_in(64) {
            start = Sector(self.prng.range(0, 2 * zones * size));
        }
        let reset = ZoneAction::Reset;
        let actions =
            [ZoneAction::Open, ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, reset, reset, reset];
        match self.prng.below(24) {
            0 => Op::ZoneResetAll,
            1..=3 => Op::ReportZones { from: start, max: self.prng.below(4) as u32 },
            _ => Op::ZoneMgmt { zone: start, action: self.prng.pick(&actions) },
        }
    }

    /// A sequential zone, at times a conventional one, and where it is written next.
    fn pointer(&mut self, id: VolumeId) -> (Sector, u64) {
        let volume = &self.zones.volumes[&id];
        // Few zones are written at once, so that some get full.
        let few = volume.zones.len().min(4);
        let near = if self.prng.one_in(4) { volume.zones.len() } else { few };
        let zone = self.prng.index(near);
        (Sector(zone as u64 * volume.geometry.size.0), volume.zones[zone].wp)
    }

    /// Moves a write to the pointer of a zone, or makes an append of it.
    pub(super) fn aim_at_pointer(&mut self, request: &mut Request) {
        let (Op::Write(range) | Op::WriteZeroes(range)) = request.op else { return };
        if !self.zones.volumes.contains_key(&request.volume) || self.prng.one_in(12) {
            return;
        }
        let (start, wp) = self.pointer(request.volume);
        let geometry = self.zones.volumes[&request.volume].geometry;
        let block = self.volumes[&request.volume].logical_block.0;
        let left = geometry.capacity.0.saturating_sub(wp).max(block);
        let most = if self.prng.one_in(16) { range.len.0 } else { range.len.0.min(left) };
        let mut len =
            if self.prng.one_in(8) && left <= self.volumes[&request.volume].max_io.0 { left } else { most };
        let all = self.volumes[&request.volume].capacity.0;
        let mut at = start.0 + wp;
        let append = matches!(request.op, Op::Write(_)) && self.prng.one_in(3);
        if append {
            request.flags = request.flags | Flags::APPEND;
            at = start.0;
            len = if self.prng.one_in(16) { len } else { len.min(geometry.max_append.0) };
        }
        let range = SectorRange {
            start: Sector(at.min(all - block)),
            len: Sectors(len.min(all - at.min(all - block))),
        };
        request.op = match request.op {
            Op::WriteZeroes(_) => Op::WriteZeroes(range),
            _ => Op::Write(range),
        };
    }

    /// Segments from anywhere, one behind the other from the pointers of a few zones on.
    pub(super) fn zone_copy(&mut self, id: VolumeId, flags: &mut Flags) -> CopyCommand {
        let (limits, volume) = (&self.volumes[&id], &self.zones.volumes[&id]);
        let (block, map_block) = (limits.logical_block.0, limits.map_block.0);
        let (most, capacity) = (limits.copy_max_segment_bytes.whole_sectors().0, volume.geometry.capacity.0);
        let append = self.prng.one_in(4);
        let mut pointers: Vec<u64> = volume.zones.iter().map(|zone| zone.wp).collect();
        let size = volume.geometry.size.0;
        let mut zone = (self.pointer(id).0.0 / size) as usize;
        let mut segments = Vec::new();
        for _ in 0..self.prng.skewed(self.options.segments.min(16)) {
            if !append && self.prng.one_in(4) {
                zone = (self.pointer(id).0.0 / size) as usize;
            }
            let left = capacity.saturating_sub(pointers[zone]);
            let left = if self.prng.one_in(24) { left + block } else { left };
            let len = self.prng.skewed((left.min(most) / block).clamp(1, 64)) * block;
            let others = self.others(id);
            let source = if others.is_empty() || self.prng.one_in(2) { id } else { self.prng.pick(&others) };
            let all = self.volumes[&source].capacity.0;
            if len > all {
                continue;
            }
            let aim = self.aim().filter(|target| target.volume == source).map(|target| target.range);
            let mut from = self.start(all, block, len, aim);
            let at = zone as u64 * size + pointers[zone];
            if self.prng.one_in(2) {
                // Such that it can be remapped.
                from = (from - from % map_block + at % map_block).min(all - len);
            }
            let to = if append { zone as u64 * size } else { at };
            segments.push(segment(source, from, len, to));
            pointers[zone] += len;
        }
        if append && !segments.is_empty() {
            *flags = *flags | Flags::APPEND;
        }
        CopyCommand { segments: segments.into() }
    }
}
