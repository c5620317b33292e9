//! The volumes of disks: which one a disk gets and what becomes of it; the disks of a dead server.

use super::super::durable::{Durable, Volume};
use super::{Entry, How, Server};
use crate::config::{CopyBackend, DiskConfig};
use crate::control::api::{ApiError, Disk};
use crate::state::DiskRecord;
use emulation::{Control, Flags, Op, VolumeId};
use std::sync::Arc;
use std::time::Duration;

impl Server {
    /// Serves the disks of a dead server again. Gives the first of them.
    pub(in crate::server) fn revive(self: &Arc<Self>, records: &[DiskRecord]) -> Result<Disk, ApiError> {
        let _changes = self.changes.lock().expect("a panic ends the process");
        let mut first = None;
        for record in records {
            match self.revive_one(record.clone()) {
                Ok(disk) => drop(first.get_or_insert(disk)),
                // Deleted meanwhile, or it never was more than a name.
                Err(error) if error.code == "no-device" => {
                    tracing::warn!("disk {}: {}", record.name, error.message);
                    self.forget(&record.name);
                }
                Err(error) => return Err(error),
            }
        }
        self.nvme.serve();
        first.ok_or_else(|| ApiError::new(404, "no-disk", "no disk of the pool is left"))
    }

    fn revive_one(self: &Arc<Self>, mut record: DiskRecord) -> Result<Disk, ApiError> {
        let (Some(number), Some(config)) = (record.volume, record.config.clone()) else {
            return Err(ApiError::new(404, "no-device", "it was never made"));
        };
        let id = VolumeId(number);
        let limits = match &self.durable {
            Some(durable) => durable.volume_of(&self.pool, &config, id)?.limits,
            None => config
                .limits(&self.pool, self.default_size)
                .map_err(|error| ApiError::from_lines(400, "bad-request", &error.to_string()))?,
        };
        match self.durable {
            Some(_) => self.engine.control(Control::SetLimits(id, limits.clone())),
            None => self.engine.control(Control::AddVolume(id, limits.clone())),
        }
        self.set_timing(id, &config);
        self.set_copy_backend(id, &config);
        {
            let mut disks = self.disks();
            disks.next_volume = disks.next_volume.max(number + 1);
        }
        record.process = self.process;
        let ublk = self.publish(&config, id, limits, How::Recover, &mut record)?;
        Ok(self.enter(record, Entry { volume: id, id: None, config, ublk }))
    }

    /// The volume of a new disk, in the pool.
    pub(super) fn volume(&self, config: &DiskConfig) -> Result<Volume, ApiError> {
        let next = self.next_volume()?;
        let Some(durable) = &self.durable else {
            let limits = config
                .limits(&self.pool, self.default_size)
                .map_err(|error| ApiError::from_lines(400, "bad-request", &error.to_string()))?;
            self.engine.control(Control::AddVolume(next, limits.clone()));
            self.set_timing(next, config);
            self.set_copy_backend(next, config);
            return Ok(Volume { id: next, limits, fresh: true });
        };
        let used = |id| self.disks().by_name.values().any(|entry| entry.volume == id);
        let volume = durable.volume(&self.pool, config, self.default_size, used)?;
        let limits = volume.limits.clone();
        self.engine.control(match volume.fresh {
            true => Control::AddVolume(volume.id, limits),
            false => Control::SetLimits(volume.id, limits),
        });
        self.set_timing(volume.id, config);
        self.set_copy_backend(volume.id, config);
        Ok(volume)
    }

    /// From now on the volume takes as long as its configuration says, which was checked.
    pub(super) fn set_timing(&self, id: VolumeId, config: &DiskConfig) {
        let timing = config.timing.timing().expect("checked with the limits");
        self.engine.control(Control::SetTiming(id, timing));
    }

    /// From now on copies of the volume move bytes as its configuration says.
    pub(super) fn set_copy_backend(&self, id: VolumeId, config: &DiskConfig) {
        self.engine.set_copy_by_file(id, config.copy_backend == CopyBackend::Cfr);
    }

    /// The disk of a volume is gone. The volume goes with it, unless it is one that lies in a file.
    pub(super) fn drop_volume(&self, id: VolumeId, fresh: bool) {
        if let Some(durable) = &self.durable {
            if !fresh && !durable.is_memory() {
                return;
            }
            // First: what is written down as gone is not looked for after a crash.
            if let Err(error) = durable.remove(id) {
                tracing::error!("volume {}: {}", id.0, error.message);
            }
        }
        self.engine.control(Control::RemoveVolume(id));
    }

    /// Makes everything durable that was acknowledged, of a pool that outlives this server. False when it cannot.
    pub(in crate::server) async fn flush(&self, most: Duration) -> bool {
        let Some(volume) = self.durable.as_ref().and_then(Durable::any) else {
            return true;
        };
        let flush = self.engine.call(volume, Op::Flush, Flags::NONE, None);
        match tokio::time::timeout(most, flush).await {
            Ok(result) if result.completion.status.is_ok() => true,
            Ok(result) => {
                tracing::error!("the last flush: {}", result.completion.status);
                false
            }
            Err(_) => {
                tracing::error!("the last flush did not end within {} s", most.as_secs());
                false
            }
        }
    }

    /// Closes the store, when the engine has ended.
    pub(in crate::server) fn close_store(&self) -> Result<(), String> {
        self.durable.as_ref().map_or(Ok(()), Durable::close)
    }
}
