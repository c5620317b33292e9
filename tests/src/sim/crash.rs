//! Crashes, and looking at what a crash would leave.

use super::changes::ZEROES;
use super::log::SimLog;
use super::run::Image;
use super::store::Buffers;
use super::world::World;
use emulation::redo::{RedoLog, ZoneChange};
use emulation::{
    BlkStatus, IoResult, Next, Op, Request, RequestId, Sector, SectorRange, Sectors, Step, VolumeId,
};

impl World<'_> {
    /// Looks at some sectors of some volume as a crash would leave them now at least.
    pub(super) fn probe(&mut self) -> Result<(), String> {
        if let Some(names) = &self.names {
            names.check_replay(&self.log.records())?;
            self.zones.check_replay(&self.log.records().zones)?;
        }
        let index = self.prng.index(self.volumes.len());
        let id = *self.volumes.keys().nth(index).expect("the index is below their number");
        self.probe_some(id, 16)
    }

    pub(super) fn probe_some(&mut self, id: VolumeId, count: u64) -> Result<(), String> {
        let capacity = self.volumes[&id].capacity.0;
        for _ in 0..count {
            let start = Sector(self.prng.below(capacity));
            self.probe_range(id, SectorRange { start, len: Sectors(1) })?;
        }
        Ok(())
    }

    /// The durable image has to hold what a crash may leave, in each of these sectors.
    pub(super) fn probe_range(&mut self, id: VolumeId, range: SectorRange) -> Result<(), String> {
        self.report.probes += 1;
        for sector in range.start.0..range.end().0 {
            let place = match &self.names {
                Some(names) => names.durable_sector(id, sector),
                None => Some(sector),
            };
            let value = place.map_or(ZEROES, |place| self.store.durable(place));
            self.oracle.may_survive(id, sector, value).map_err(|error| format!("durable image: {error}"))?;
        }
        Ok(())
    }

    /// The host crashes. Of unsynced data any part is lost, and so is the redo log.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.end_commit()?;
        self.store.crash(&mut self.prng);
        let entries = self.names.as_mut().map(|names| names.crash());
        self.trace.line(|| format!("crash: {entries:?}"));
        self.log = SimLog::new(self.options.log_records);
        let zones = self.zones.image().into_iter().map(ZoneChange::after_power_loss).collect();
        let image = Image { entries: entries.unwrap_or_default(), zones, ..self.image() };
        self.begin_again(&image);
        self.zones.begin_again(true)?;
        self.check_zones().map_err(|error| format!("after a crash: {error}"))?;
        let contents = self.contents()?;
        for (id, values) in &contents {
            for (sector, &value) in values.iter().enumerate() {
                self.oracle.may_survive(*id, sector as u64, value)?;
            }
        }
        self.settle(contents);
        Ok(())
    }

    /// The server dies: its store and its log live on, and everything that was answered has to be there.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.report.kills += 1;
        self.end_commit()?;
        let mut image = self.image();
        if let Some(names) = &mut self.names {
            names.check_replay(&self.log.records())?;
            (image.entries, image.sequence) = names.kill();
            // Whoever opens a log again begins it behind the image: a full log of records that the image has
            // would be waited for in vain, as no commit drops them.
            self.log.committed(image.sequence);
            let records = self.log.records();
            let later = records.kept.iter().filter(|(number, _)| *number > image.sequence);
            image.records = later.cloned().collect();
            self.zones.check_replay(&records.zones)?;
            (image.zones, image.zone_records) = (self.zones.image(), self.zones.later(&records.zones));
        }
        self.trace.line(|| format!("kill: {image:?}"));
        self.begin_again(&image);
        self.zones.begin_again(false)?;
        self.check_zones().map_err(|error| format!("after the death of the server: {error}"))?;
        let contents = self.contents()?;
        for (id, values) in &contents {
            for (sector, &value) in values.iter().enumerate() {
                self.oracle.may_hold(*id, sector as u64, value)?;
            }
        }
        self.trace_contents(&contents);
        self.oracle.revive(&contents);
        Ok(())
    }

    /// A commit under way when everything ends is durable as a whole or not at all.
    fn end_commit(&mut self) -> Result<(), String> {
        for index in 0..self.plans.len() {
            let running = &self.plans[index];
            let at_commit = matches!(running.plan.steps.get(running.steps), Some(Step::Commit(_)));
            if at_commit && self.prng.one_in(2) {
                self.work(index, 1)?;
            }
        }
        Ok(())
    }

    /// What every volume holds, read through the device. Nothing else may be under way.
    pub(super) fn contents(&mut self) -> Result<Vec<(VolumeId, Vec<u64>)>, String> {
        let ids: Vec<_> = self.volumes.keys().copied().collect();
        ids.into_iter().map(|id| Ok((id, self.contents_of(id)?))).collect()
    }

    /// What a volume holds, read through the device.
    pub(super) fn contents_of(&mut self, id: VolumeId) -> Result<Vec<u64>, String> {
        let (capacity, most) = (self.volumes[&id].capacity.0, self.volumes[&id].max_io.0);
        let mut values = Vec::new();
        while (values.len() as u64) < capacity {
            let start = values.len() as u64;
            let range = SectorRange { start: Sector(start), len: Sectors(most.min(capacity - start)) };
            match self.zones.readable(id, range) {
                Ok(range) => values.extend(self.read_now(id, range)?),
                Err(range) => values.extend(self.peek(id, range)),
            }
        }
        self.check_above(id, &values)?;
        Ok(values)
    }

    /// What sectors hold that cannot be read.
    fn peek(&self, id: VolumeId, range: SectorRange) -> Vec<u64> {
        let names = self.names.as_ref().expect("zones are over maps");
        let place = |sector| names.live_sector(id, sector);
        (range.start.0..range.end().0)
            .map(|sector| place(sector).map_or(ZEROES, |at| self.store.live(at)))
            .collect()
    }

    fn read_now(&mut self, volume: VolumeId, range: SectorRange) -> Result<Vec<u64>, String> {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let op = Op::Read(range);
        if let Some(tally) = self.tallies.get_mut(&volume) {
            tally.commands += 1;
        }
        let mut buffers = Buffers::new(id, 0, range.len.0);
        let mut answers =
            self.pool.begin(self.now, Request { id, volume, op, flags: emulation::Flags::NONE });
        let mut status = None;
        // A read is one plan; what else is answered is the device's own work.
        for _ in 0..2 {
            for (whose, next) in std::mem::take(&mut answers) {
                match next {
                    Next::Run(plan) if whose == id => {
                        for step in &plan.steps {
                            self.store.work(
                                step,
                                plan.port,
                                (0, super::store::Store::len_of(step)),
                                Some(&mut buffers),
                            )?;
                        }
                        let io = IoResult::done(&plan);
                        answers.extend(self.pool.finish(self.now, plan, io));
                    }
                    Next::Run(plan) => self.receive(whose, plan)?,
                    Next::Done(completion) if whose == id => status = Some(completion.status),
                    Next::Done(_) | Next::Wait => {}
                }
            }
        }
        match status {
            Some(BlkStatus::Ok) => Ok(buffers.read),
            other => Err(format!("a read of volume {} at {range} ended as {other:?}", volume.0)),
        }
    }

    /// An image of empty volumes.
    fn image(&self) -> Image {
        let volumes = self.volumes.iter().map(|(&id, limits)| (id, limits.clone()));
        Image { volumes: volumes.collect(), ..Image::default() }
    }

    /// Nothing is under way, and this is what the volumes hold from now on.
    pub(super) fn settle(&mut self, contents: Vec<(VolumeId, Vec<u64>)>) {
        self.oracle.forget_requests();
        self.trace_contents(&contents);
        for (id, values) in contents {
            self.oracle.set_volume(id, values.into_iter());
        }
    }

    pub(super) fn trace_contents(&mut self, contents: &[(VolumeId, Vec<u64>)]) {
        for (_, values) in contents {
            self.trace.number(values.iter().fold(0, |sum, value| super::prng::mix(sum ^ value)));
        }
    }
}
