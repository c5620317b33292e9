//! Rules of faults and power cuts. Only faults that say what they are: a request that is struck fails, waits or is cut
//! off, and the disk never says that something is done which is not.

use super::workload::targets;
use super::world::World;
use emulation::fault::{FaultAction, FaultOp, FaultPick, FaultRule};
use emulation::{BlkStatus, Bytes, Control, Keep, Nanos, Out, VolumeId};

impl World<'_> {
    fn any_volume(&mut self) -> VolumeId {
        let index = self.prng.index(self.volumes.len());
        *self.volumes.keys().nth(index).expect("the index is below their number")
    }

    /// Adds a rule to some volume, or removes all of one.
    pub(super) fn change_faults(&mut self) -> Result<(), String> {
        let id = self.any_volume();
        if self.prng.one_in(3) {
            return self.remove_faults_of(id);
        }
        let rule = match self.zones.volumes.contains_key(&id) {
            true => self.draw_rule_of_zones(),
            false => self.draw_rule(id),
        };
        self.trace.line(|| format!("fault on v{}: {rule:?}", id.0));
        // A name that is there, or one rule too many.
        drop(self.pool.add_fault(id, rule));
        Ok(())
    }

    fn draw_rule(&mut self, id: VolumeId) -> FaultRule {
        const STATUSES: [BlkStatus; 3] = [BlkStatus::Medium, BlkStatus::Target, BlkStatus::Timeout];
        let block = self.volumes[&id].logical_block.bytes().0;
        let in_place = self.names.is_none();
        let action = match self.prng.below(if in_place { 5 } else { 6 }) {
            0 => FaultAction::Error(self.prng.pick(&STATUSES)),
            1 => FaultAction::Delay(Nanos(self.prng.skewed(1 << 30))),
            2 => FaultAction::Hang,
            3 => FaultAction::FailAt(self.prng.skewed(8) as u32 - 1),
            4 => FaultAction::StopAt(Bytes((self.prng.skewed(64) - 1) * block)),
            _ => FaultAction::PowerCut(None),
        };
        let ops = [FaultOp::Any, FaultOp::Any, FaultOp::Write, FaultOp::Copy, FaultOp::Flush];
        let pick = match self.prng.one_in(2) {
            true => FaultPick::From(self.prng.range(1, 4)),
            false => FaultPick::Ratio(1, self.prng.range(1, 16) as u32),
        };
        FaultRule {
            op: self.prng.pick(&ops),
            pick,
            count: Some(self.prng.skewed(8)),
            seed: self.prng.next(),
            ..FaultRule::new(&format!("rule{}", self.prng.below(4)), action)
        }
    }

    /// A rule for a volume with zones: of what it does to requests that change zones their model knows power cuts only.
    fn draw_rule_of_zones(&mut self) -> FaultRule {
        let read = self.prng.pick(&[FaultOp::Read, FaultOp::Flush]);
        let (op, action) = match self.prng.below(4) {
            0 => (read, FaultAction::Error(BlkStatus::Medium)),
            1 => (read, FaultAction::Hang),
            _ => (self.prng.pick(&[FaultOp::Any, FaultOp::Copy]), FaultAction::PowerCut(None)),
        };
        FaultRule {
            op,
            pick: FaultPick::From(self.prng.range(1, 4)),
            count: Some(self.prng.skewed(4)),
            seed: self.prng.next(),
            ..FaultRule::new(&format!("rule{}", self.prng.below(4)), action)
        }
    }

    fn remove_faults_of(&mut self, id: VolumeId) -> Result<(), String> {
        self.trace.line(|| format!("no faults on v{}", id.0));
        self.call(|pool, _| pool.remove_faults(id, None).unwrap_or_else(Out::new))
    }

    /// From now on no request is struck.
    pub(super) fn remove_faults(&mut self) -> Result<(), String> {
        let ids: Vec<_> = self.volumes.keys().copied().collect();
        for id in ids {
            if self.pool.faults(id).next().is_some() {
                self.remove_faults_of(id)?;
            }
        }
        Ok(())
    }

    /// Marks the requests that rules struck in the last call. Gives the volumes whose power they cut.
    pub(super) fn struck(&mut self) -> Vec<VolumeId> {
        for &id in self.volumes.keys() {
            for (state, _) in self.pool.faults(id) {
                let status = match state.rule.action {
                    FaultAction::Error(status) => Some(status),
                    FaultAction::Hang => Some(BlkStatus::Timeout),
                    FaultAction::FailAt(_) => Some(BlkStatus::Medium),
                    FaultAction::StopAt(_) => Some(BlkStatus::IoErr),
                    FaultAction::Delay(_)
                    | FaultAction::Corrupt
                    | FaultAction::Torn
                    | FaultAction::Misdirect(_)
                    | FaultAction::LostFlush
                    | FaultAction::Zone(_)
                    | FaultAction::PowerCut(_) => None,
                };
                for strike in &state.strikes {
                    if let Some(live) = self.live.get_mut(&strike.request).filter(|live| !live.struck) {
                        live.struck = true;
                        live.injected.extend(status);
                        self.report.struck += 1;
                    }
                }
            }
        }
        let cuts = self.pool.take_power_cuts();
        cuts.iter().for_each(|&id| self.orphan(id));
        cuts
    }

    /// What touches a volume may end anyhow.
    fn orphan(&mut self, id: VolumeId) {
        for live in self.live.values_mut().filter(|live| live.refusal.is_empty()) {
            live.orphan |= live.request.volume == id || targets(&live.request).iter().any(|t| t.volume == id);
        }
    }

    /// The power of a volume fails.
    pub(super) fn power_cut(&mut self) -> Result<(), String> {
        let id = self.any_volume();
        let keep = match self.prng.below(4) {
            0 => Keep::None,
            1 => Keep::All,
            _ => Keep::Some(self.prng.next()),
        };
        self.trace.line(|| format!("power cut of v{}: {keep:?}", id.0));
        self.orphan(id);
        self.call_and_cut(Some(id), |pool, now| pool.control(now, Control::power_cut(id, keep)))
    }

    /// Every sector of a volume holds what a crash may leave, and what was under way never changes it.
    pub(super) fn after_power_cut(&mut self, id: VolumeId) -> Result<(), String> {
        self.report.power_cuts += 1;
        // Nothing is to strike what only looks.
        self.remove_faults_of(id)?;
        if let Some(names) = &self.names {
            names.check_replay(&self.log.records())?;
            self.zones.check_replay(&self.log.records().zones)?;
        }
        let values = self.contents_of(id)?;
        for (sector, &value) in (0..).zip(&values) {
            self.oracle.may_survive(id, sector, value).map_err(|error| format!("power cut: {error}"))?;
        }
        self.trace_contents(&[(id, values.clone())]);
        self.oracle.power_cut(id, values);
        Ok(())
    }
}
