//! What the owner of the pool does to its volumes while they work.

use super::workload::targets;
use super::world::{Live, Tally, World};
use emulation::fault::{FaultPick, FaultRule};
use emulation::timing::profile::PROFILES;
use emulation::timing::{Latency, Timing};
use emulation::{Control, Limits, Nanos, VolumeId};

impl World<'_> {
    pub(super) fn set_limits(&mut self) -> Result<(), String> {
        let index = self.prng.index(self.volumes.len());
        let id = *self.volumes.keys().nth(index).expect("the index is below their number");
        let limits = self.options.draw_limits(&mut self.prng, &self.volumes[&id]);
        self.change_limits(id, limits)
    }

    /// A volume does not stay read-only for long: little happens on it.
    pub(super) fn make_writable(&mut self) -> Result<(), String> {
        match self.volumes.iter().find(|(_, limits)| limits.read_only) {
            Some((&id, limits)) => self.change_limits(id, Limits { read_only: false, ..limits.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn change_limits(&mut self, id: VolumeId, limits: Limits) -> Result<(), String> {
        self.trace.line(|| format!("limits of v{}: {limits:?}", id.0));
        self.volumes.insert(id, limits.clone());
        self.report.limits += 1;
        self.call(|pool, now| pool.control(now, Control::SetLimits(id, limits)))
    }

    pub(super) fn add_volume(&mut self) -> Result<(), String> {
        let most = self.options.volumes_max as u64;
        let free: Vec<u64> = (0..most).filter(|&n| !self.volumes.contains_key(&VolumeId(n as u32))).collect();
        let id = VolumeId(self.prng.pick(&free) as u32);
        let limits = self.options.draw_volume(&mut self.prng);
        limits.validate().map_err(|error| format!("the simulator drew limits that are none: {error}"))?;
        self.trace.line(|| format!("add v{} {limits:?}", id.0));
        if let Some(names) = &mut self.names {
            names.add_volume(id, &limits);
        }
        self.oracle.add_volume(id, limits.capacity.0);
        self.zones.add_volume(id, &limits);
        self.volumes.insert(id, limits.clone());
        // A number used before: plans of the volume that had it may still be counted for it.
        let fresh = !self.tallies.contains_key(&id) && self.report.removals == 0;
        if fresh {
            self.tallies.insert(id, Tally::default());
        } else {
            self.tallies.remove(&id);
        }
        self.call(|pool, now| pool.control(now, Control::AddVolume(id, limits)))?;
        if let Some(action) = self.options.lie {
            let rule = FaultRule { pick: FaultPick::Ratio(1, 4), ..FaultRule::new("lie", action) };
            self.pool.add_fault(id, rule).map_err(|error| format!("the lie: {error}"))?;
        }
        if !self.options.timed {
            return Ok(());
        }
        let timing = Box::new(self.draw_timing());
        self.trace.line(|| format!("timing of v{}: {timing:?}", id.0));
        self.call(|pool, now| pool.control(now, Control::SetTiming(id, Some(timing))))
    }

    /// A ready timing, at times with a short queue, and latencies for what needs no plan.
    fn draw_timing(&mut self) -> Timing {
        let mut timing = self.prng.pick(&PROFILES).timing();
        timing.queue_depth = self.prng.one_in(2).then_some(2);
        timing.latency.flush = Latency::Normal { mean: Nanos(50_000), deviation: Nanos(20_000) };
        timing.latency.report_zones = Latency::Fixed(Nanos(1_000));
        timing.seed = self.prng.next();
        timing
    }

    pub(super) fn remove_volume(&mut self) -> Result<(), String> {
        let index = self.prng.index(self.volumes.len());
        let id = *self.volumes.keys().nth(index).expect("the index is below their number");
        self.drop_volume(id)
    }

    pub(super) fn drop_volume(&mut self, id: VolumeId) -> Result<(), String> {
        self.trace.line(|| format!("remove v{}", id.0));
        self.report.removals += 1;
        self.volumes.remove(&id);
        self.tallies.remove(&id);
        self.oracle.remove_volume(id);
        self.zones.volumes.remove(&id);
        if let Some(names) = &mut self.names {
            names.remove_volume(id);
        }
        self.log.forget(id);
        for live in self.live.values_mut().filter(|live| live.refusal.is_empty()) {
            live.orphan |= live.request.volume == id || targets(&live.request).iter().any(|t| t.volume == id);
        }
        self.targets.retain(|(_, target)| target.volume != id);
        self.call(|pool, now| pool.control(now, Control::RemoveVolume(id)))?;
        let its = |live: &Live| live.request.volume == id && live.refusal.is_empty();
        match self.live.iter().find(|(_, live)| its(live) && live.parked && live.can_end_early()) {
            Some((id, _)) => Err(format!("request {} waits for a volume that is gone", id.0)),
            None => Ok(()),
        }
    }
}
