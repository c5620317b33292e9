//! Faults and power cuts of disks.

use super::Server;
use crate::coherence::{self, DiskRange, Order};
use crate::config::PoolType;
use crate::control::api::{ApiError, Empty};
use crate::control::fault_rules::{
    FaultSpec, FaultView, PowerCutRequest, PowerCutView, SpecError, parse_keep,
};
use crate::control::handle::check_claims;
use crate::control::zones;
use emulation::fault::FaultError;
use emulation::{Control, Keep, Out, Sector, SectorRange, VolumeId};
use std::sync::{Arc, Weak};

impl Server {
    /// The rules of a disk.
    pub(crate) fn faults(&self, key: &str) -> Result<Vec<FaultView>, ApiError> {
        let (_, found) = self.find(key)?;
        Ok(self.fault_views(found.volume))
    }

    fn fault_views(&self, volume: VolumeId) -> Vec<FaultView> {
        let view = |(state, hung): (&_, Vec<_>)| FaultView::new(state, &hung);
        self.engine.with_pool(|pool| pool.faults(volume).map(view).collect())
    }

    /// Adds a rule to a disk.
    pub(crate) fn add_fault(&self, key: &str, spec: &FaultSpec) -> Result<FaultView, ApiError> {
        let (name, found) = self.find(key)?;
        self.add_faults(found.volume, std::slice::from_ref(spec))?;
        let view = self.fault_views(found.volume).pop();
        let view = view.ok_or_else(|| ApiError::new(404, "no-fault", "the rule was removed meanwhile"))?;
        tracing::info!("disk {name}: fault {:?}", view.rule);
        Ok(view)
    }

    /// Adds rules to a volume, until one is refused.
    pub(super) fn add_faults(&self, volume: VolumeId, specs: &[FaultSpec]) -> Result<(), ApiError> {
        for spec in specs {
            self.engine.with_pool(|pool| {
                let limits = pool.limits(volume).cloned();
                let limits =
                    limits.ok_or_else(|| ApiError::new(404, "no-disk", "the disk is being deleted"))?;
                let taken = |name: &str| pool.faults(volume).any(|(state, _)| state.rule.name == name);
                let free = (1..).map(|n| format!("fault{n}")).find(|name| !taken(name));
                let free = free.expect("a disk has few rules");
                let rule = spec.checked(&free, &limits).map_err(|error| spec_error(&error))?;
                pool.add_fault(volume, rule).map_err(|error| spec_error(&error.into()))
            })?;
        }
        Ok(())
    }

    /// Removes a rule of a disk, all of them without a name. What hung by it is answered.
    pub(crate) fn remove_faults(&self, key: &str, rule: Option<&str>) -> Result<Empty, ApiError> {
        let (name, found) = self.find(key)?;
        let removed = self.engine.apply(|pool, _| match pool.remove_faults(found.volume, rule) {
            Some(out) => (out, true),
            None => (Out::new(), false),
        });
        let rule = rule.unwrap_or("every one");
        if !removed {
            let why = format!("disk {name} has no fault \"{rule}\"");
            return Err(ApiError::new(404, "no-fault", why).hint(format!("`ublk fault list -n {name}`")));
        }
        tracing::info!("disk {name}: faults removed: {rule}");
        Ok(Empty {})
    }

    /// Nothing hangs any more, and nothing will.
    pub(super) fn end_faults(&self, volume: VolumeId) {
        self.engine.apply(|pool, _| (pool.remove_faults(volume, None).unwrap_or_default(), ()));
    }

    /// The power of a disk fails.
    pub(crate) async fn power_cut(
        self: &Arc<Self>,
        key: &str,
        request: &PowerCutRequest,
    ) -> Result<PowerCutView, ApiError> {
        let keep = request.keep.as_deref().map_or(Ok(Keep::None), parse_keep);
        let keep = keep.map_err(|why| ApiError::bad_request(format!("keep: {why}")))?;
        let (name, found) = self.find(key)?;
        may_lose_power(self.pool.kind)?;
        if let Some(id) = found.id.filter(|_| !request.force) {
            let claims = tokio::task::spawn_blocking(move || {
                check_claims(vec![id], "cut the power below its user with force")
            });
            claims.await.expect("a panic ends the process")?;
        }
        let undone_bytes = self.engine.apply(|pool, now| {
            let before = pool.ledger(found.volume).undone.0;
            let out = pool.control(now, Control::power_cut(found.volume, keep));
            (out, pool.ledger(found.volume).undone.0 - before)
        });
        tracing::warn!("disk {name}: power cut, {undone_bytes} bytes undone");
        let stale_pages = self.resync(found.volume).await?;
        Ok(PowerCutView { undone_bytes, stale_pages })
    }

    /// Has the host drop what it has cached of a volume, and tells it where the zones are written next. Gives the pages that
    /// stayed.
    async fn resync(&self, volume: VolumeId) -> Result<u64, ApiError> {
        let id =
            self.disks().by_name.values().find(|entry| entry.volume == volume).and_then(|entry| entry.id);
        let Some(disk) = id else { return Ok(0) };
        let limits = self.limits(volume)?;
        let failed =
            |error: coherence::HelperError| ApiError::from_lines(500, "coherence", &error.to_string());
        let all = DiskRange { disk, offset: 0, length: limits.capacity.bytes().0 };
        let dropped = coherence::ask(Order::Drop(vec![all])).await;
        let whole = SectorRange { start: Sector(0), len: limits.capacity };
        // Whatever became of the pages: until then the host cannot write to the zones.
        if let Some(order) = zones::resync(self, volume, disk, &limits, &[whole]).await? {
            coherence::ask(order).await.map_err(failed)?;
        }
        Ok(dropped.map_err(failed)?.stale_pages)
    }

    /// Has the host's cache follow power cuts that rules made.
    pub(super) fn watch_power(self: &Arc<Self>) {
        let (engine, server): (_, Weak<Self>) = (Arc::clone(&self.engine), Arc::downgrade(self));
        self.runtime.spawn(async move {
            loop {
                engine.power_cut().await;
                let Some(server) = server.upgrade() else { return };
                for volume in engine.with_pool(emulation::Pool::take_power_cuts) {
                    tracing::warn!("volume {}: a rule cut its power", volume.0);
                    if let Err(error) = server.resync(volume).await {
                        tracing::error!("the host's cache may be stale: {}", error.message);
                    }
                }
            }
        });
    }
}

/// Refuses what a power cut cannot do to a disk.
pub(in crate::server) fn may_lose_power(kind: PoolType) -> Result<(), ApiError> {
    match kind {
        PoolType::Ram | PoolType::File => Ok(()),
        PoolType::Loop | PoolType::Null => {
            let why = "types loop and null write in place: there is nothing to go back to";
            Err(ApiError::new(409, "no-power-cut", why).hint("use type ram or file"))
        }
    }
}

fn spec_error(error: &SpecError) -> ApiError {
    match error {
        SpecError::Rule(FaultError::Exists(_)) => ApiError::new(409, "in-use", error.to_string()),
        SpecError::Rule(_)
        | SpecError::Word(_)
        | SpecError::Twice(_)
        | SpecError::NoAction
        | SpecError::Value(..)
        | SpecError::Picks => ApiError::bad_request(error.to_string()),
    }
}
