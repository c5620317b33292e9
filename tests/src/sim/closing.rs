//! The end of a run, and the invariants that hold all the time. At the end no more faults happen: everything that
//! is under way has to be answered, contents have to be those of the oracle, and nothing may be left behind.

use super::world::World;
use emulation::{
    Bytes, CopyMode, Flags, Instant, Limits, Op, Request, RequestId, Sector, SectorRange, VolumeId,
};

/// More events than any run needs to end.
pub(super) const EVENTS_MAX: u64 = 500_000;

impl World<'_> {
    /// Every invariant that holds between any two calls.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.pool.check()?;
        self.check_zones()?;
        let Some(names) = &self.names else { return Ok(()) };
        let usage = self.pool.usage();
        let blocks = |sectors: emulation::Sectors| sectors.0 / self.options.map_block;
        let mapped = names.mapped();
        // Remaps under way hold references of their own, and blocks that plans read are counted apart.
        let idle = self.plans.is_empty();
        if blocks(usage.mapped) < mapped || (idle && blocks(usage.mapped) != mapped) {
            return Err(format!("{usage:?}: maps name {mapped} blocks"));
        }
        if idle && blocks(usage.held) < names.held() {
            return Err(format!("{usage:?}: the durable image alone names {} blocks", names.held()));
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), String> {
        self.trace.line(|| "no more faults".into());
        self.now = Instant(self.now.0 + 2_000_000_000);
        self.drain()?;
        self.check()?;
        self.check_ledgers()?;
        self.compare()?;
        for id in self.volumes.keys().copied().collect::<Vec<_>>() {
            self.must(id, Op::Flush, Flags::NONE)?;
        }
        self.drain()?;
        if self.options.held_max.is_some() {
            for (id, limits) in self.volumes.clone() {
                self.probe_range(id, SectorRange { start: Sector(0), len: limits.capacity })?;
            }
        }
        self.empty()
    }

    /// A pause in which everything ends, is made durable and is read: what is known of each sector is exact again.
    pub(super) fn calm(&mut self) -> Result<(), String> {
        self.report.calms += 1;
        self.trace.line(|| "pause".into());
        self.now = Instant(self.now.0 + 2_000_000_000);
        self.drain()?;
        for id in self.volumes.keys().copied().collect::<Vec<_>>() {
            self.must(id, Op::Flush, Flags::NONE)?;
        }
        let contents = self.compare()?;
        self.settle(contents);
        Ok(())
    }

    /// Goes on, without faults, until nothing is under way.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.remove_faults()?;
        self.frozen = false;
        let mut idle = 0;
        for _ in 0..EVENTS_MAX {
            self.tick();
            let ready = self.plans.iter().filter(|running| running.executed()).count() as u64;
            let all = self.plans.len() as u64;
            if all > 0 {
                idle = 0;
                if self.prng.below(all) < ready { self.finish()? } else { self.step()? }
            } else if self.live.is_empty() {
                return Ok(());
            } else {
                self.now = self.now.max(self.wake_at.unwrap_or(self.now));
                if !self.wake()? {
                    idle += 1;
                }
                if idle > 3 {
                    let waiting: Vec<u64> = self.live.keys().map(|id| id.0).collect();
                    return Err(format!("requests {waiting:?} wait for ever"));
                }
            }
            if self.event.is_multiple_of(self.options.check_every) {
                self.check()?;
            }
        }
        Err(format!("{} requests live on after {EVENTS_MAX} events", self.live.len()))
    }

    /// Reads everything and compares it with what the oracle allows.
    fn compare(&mut self) -> Result<Vec<(VolumeId, Vec<u64>)>, String> {
        let contents = self.contents()?;
        for (id, values) in &contents {
            for (sector, &value) in values.iter().enumerate() {
                self.oracle.may_hold(*id, sector as u64, value)?;
            }
        }
        Ok(contents)
    }

    /// What the ledgers say of copies has to be what the copies did.
    fn check_ledgers(&mut self) -> Result<(), String> {
        for (&id, tally) in &self.tallies {
            let ledger = *self.pool.ledger(id);
            let commands: u64 = ledger.commands.iter().sum();
            if commands != tally.commands {
                return Err(format!(
                    "volume {} took {} commands, its ledger says {commands}",
                    id.0, tally.commands
                ));
            }
            let copied = ledger.copied().0;
            if !(tally.copied..=tally.copied + tally.perhaps).contains(&copied) {
                return Err(format!(
                    "volume {}: {tally:?}, its ledger says {copied} bytes: {ledger:?}",
                    id.0
                ));
            }
            if !tally.may_remap && ledger.remapped != Bytes(0) {
                return Err(format!("volume {} was never to remap: {ledger:?}", id.0));
            }
        }
        Ok(())
    }

    /// With everything discarded or removed, nothing is mapped and nothing is held back.
    fn empty(&mut self) -> Result<(), String> {
        if self.names.is_none() {
            return Ok(());
        }
        let mut ids: Vec<VolumeId> = self.volumes.keys().copied().collect();
        for id in ids.split_off(1) {
            self.drop_volume(id)?;
        }
        if !self.zones.volumes.is_empty() {
            // Zones that failed are never empty again.
            self.add_volume()?;
            self.drop_volume(ids[0])?;
        }
        let id = *self.volumes.keys().next().expect("there is one");
        let old = &self.volumes[&id];
        let limits = Limits { copy_mode: CopyMode::Remap, read_only: false, ..old.clone() };
        let all = SectorRange { start: Sector(0), len: limits.capacity };
        let block = all.split_at(limits.logical_block).0;
        self.change_limits(id, limits)?;
        self.must_empty(id, all)?;
        self.must(id, Op::Flush, Flags::NONE)?;
        // Blocks that a read outlived may be held back for one commit more.
        self.must(id, Op::WriteZeroes(block), Flags::NOUNMAP)?;
        self.must_empty(id, all)?;
        self.must(id, Op::Flush, Flags::NONE)?;
        self.drain()?;
        let usage = self.pool.usage();
        if usage.mapped.0 + usage.held.0 + usage.trimming.0 != 0 {
            return Err(format!("everything is discarded and durable, and blocks are in use: {usage:?}"));
        }
        self.check()
    }

    fn must_empty(&mut self, id: VolumeId, all: SectorRange) -> Result<(), String> {
        let Some(volume) = self.zones.volumes.get(&id) else {
            return self.must(id, Op::Discard(all), Flags::NONE);
        };
        let conventional = u64::from(volume.geometry.conventional) * volume.geometry.size.0;
        if conventional > 0 {
            let first = all.split_at(emulation::Sectors(conventional)).0;
            self.must(id, Op::Discard(first), Flags::NONE)?;
        }
        self.must(id, Op::ZoneResetAll, Flags::NONE)
    }

    /// A request that cannot fail any more.
    fn must(&mut self, volume: VolumeId, op: Op, flags: Flags) -> Result<(), String> {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let ok = self.report.ok();
        self.begin(&mut Request { id, volume, op, flags })?;
        self.drain()?;
        if self.report.ok() == ok {
            Err(format!("request {} failed, and no fault was left", id.0))
        } else {
            Ok(())
        }
    }
}
