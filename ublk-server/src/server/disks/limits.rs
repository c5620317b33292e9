//! Changing the limits of copies while a disk runs: those of the pool, and those by which the kernel cuts copies.

use super::{Entry, Server, at_nvme, limits_view};
use crate::coherence::{self, Order};
use crate::control::api::{ApiError, LimitsPatch, LimitsView};
use crate::ublk::UblkDisk;
use crate::ublk::native::{self, CopyLimits};
use emulation::Control;

impl Server {
    /// Changes what can change while a disk runs. Blocks until the kernel has the limits, too.
    pub(crate) fn set_limits(&self, key: &str, patch: &LimitsPatch) -> Result<LimitsView, ApiError> {
        let _changes = self.changes.lock().expect("a panic ends the process");
        let (name, found) = self.find(key)?;
        let (mut config, native) = {
            let disks = self.disks();
            let entry = disks.by_name.get(&name).expect("found under the lock for changes");
            (entry.config.clone(), native_id(entry))
        };
        config.copy = patch.copy.or(config.copy);
        config.copy_backend = patch.copy_backend.unwrap_or(config.copy_backend);
        config.copy_max_bytes = patch.copy_max_bytes.unwrap_or(config.copy_max_bytes);
        config.copy_max_segment_bytes = patch.copy_max_segment_bytes.unwrap_or(config.copy_max_segment_bytes);
        config.copy_max_segments = patch.copy_max_segments.unwrap_or(config.copy_max_segments);
        config.timing = config.timing.changed(&patch.timing);
        let limits = config
            .limits(&self.pool, self.default_size)
            .map_err(|error| ApiError::from_lines(400, "bad-request", &error.to_string()))?;

        // The kernel never sends what the disk refuses: it is the first to know of a lower limit, the last of a higher.
        let before = CopyLimits::new(&self.limits(found.volume)?);
        let after = CopyLimits::new(&limits);
        let low = before.lowest(after);
        if let Some(id) = native.filter(|_| low != before) {
            tell_kernel(id, low).map_err(|error| error.hint("nothing was changed"))?;
        }
        self.engine.control(Control::SetLimits(found.volume, limits.clone()));
        self.set_copy_backend(found.volume, &config);
        if !patch.timing.is_none() {
            self.set_timing(found.volume, &config);
        }
        self.nvme.set_limits(found.volume, &name, at_nvme(&config, limits.clone()));
        let mut disks = self.disks();
        let entry = disks.by_name.get_mut(&name).expect("found under the lock for changes");
        entry.config = config.clone();
        self.remember(&name, entry);
        drop(disks);
        let view = limits_view(&limits, &config);
        tracing::info!("disk {name}: limits changed to {view:?}");
        if let Some(id) = native.filter(|_| after != low) {
            tell_kernel(id, after)
                .map_err(|error| error.hint("the disk has the limits, its block device has lower ones"))?;
        }
        Ok(view)
    }
}

/// The number of a disk whose driver has the copy operation.
fn native_id(entry: &Entry) -> Option<u32> {
    entry.ublk.as_ref().filter(|ublk| ublk.info().flags & native::FEATURE != 0).map(UblkDisk::id)
}

/// By a helper process: the driver waits for the requests that this one serves.
fn tell_kernel(disk: u32, limits: CopyLimits) -> Result<(), ApiError> {
    coherence::run(&Order::CopyLimits { disk, limits })
        .map(drop)
        .map_err(|error| ApiError::from_lines(500, "kernel-limits", &error.to_string()))
}
