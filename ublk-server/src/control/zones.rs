//! Zones over the control API, and beside the block device.

use super::api::{
    ApiError, Empty, ZoneActionName, ZoneConditionName, ZoneReport, ZoneRequest, ZoneTypeName, ZoneView,
};
use crate::coherence::{self, DiskRange, HelperError, Order, ZoneIoctl, ZoneProbe};
use crate::config::ZONES_MAX;
use crate::engine::Engine;
use crate::server::{Found, Server};
use emulation::request::ZoneAction;
use emulation::zone::{ZoneCondition, ZoneDescriptor, ZoneFailure, ZoneGeometry, ZoneType};
use emulation::{
    BlkStatus, Bytes, Completion, Control, Flags, Limits, Op, Sector, SectorRange, Sectors, VolumeId,
};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The query of `GET /v1/disks/ID/zones`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ZonesQuery {
    #[serde(default)]
    offset: u64,
    count: Option<u32>,
}

/// The zones from the one that holds a byte on.
pub(crate) async fn report(server: &Server, key: &str, query: ZonesQuery) -> Result<ZoneReport, ApiError> {
    let (name, found) = server.find(key)?;
    let limits = server.limits(found.volume)?;
    let zones = geometry(&name, &limits)?;
    let most = u32::try_from(ZONES_MAX).expect("fewer than 2^32");
    let max = query.count.unwrap_or(most).min(most);
    let from = Sector(Bytes(query.offset).whole_sectors().0);
    let described = describe(&server.engine, found.volume, from, max).await?;
    let view = |zone: &ZoneDescriptor| ZoneView {
        zone: zones.zone_of(zone.start),
        start: zone.start.bytes().0,
        length: zone.len.bytes().0,
        capacity: zone.capacity.bytes().0,
        wp: zone.wp.bytes().0,
        kind: zone.kind.into(),
        condition: zone.condition.into(),
    };
    Ok(ZoneReport { zones: described.iter().map(view).collect() })
}

/// Changes the condition of zones: through the block device where there is one, so that its kernel knows.
pub(crate) async fn change(server: &Server, key: &str, request: ZoneRequest) -> Result<Empty, ApiError> {
    let (name, found) = server.find(key)?;
    let limits = server.limits(found.volume)?;
    let zones = geometry(&name, &limits)?;
    let starts = starts(&zones, &limits, &request)?;
    let (action, ioctl) = match request.action {
        ZoneActionName::Open => (ZoneAction::Open, ZoneIoctl::Open),
        ZoneActionName::Close => (ZoneAction::Close, ZoneIoctl::Close),
        ZoneActionName::Finish => (ZoneAction::Finish, ZoneIoctl::Finish),
        ZoneActionName::Reset => (ZoneAction::Reset, ZoneIoctl::Reset),
        ZoneActionName::ReadOnly => return Ok(fail(server, found.volume, &starts, ZoneFailure::Readonly)),
        ZoneActionName::Offline => return Ok(fail(server, found.volume, &starts, ZoneFailure::Offline)),
    };
    match found.id {
        Some(disk) => {
            let length = zones.size.bytes().0 * starts.len() as u64;
            let range = DiskRange { disk, offset: request.offset.0, length };
            by_ioctl(Order::Zones { action: ioctl, range, free: !request.force }).await
        }
        None => directly(server, found, &limits, action, &starts).await,
    }
}

/// What makes the kernel of a disk look where the zones that lie in `written` are written next; none when it need not.
pub(crate) async fn resync(
    server: &Server,
    volume: VolumeId,
    disk: u32,
    limits: &Limits,
    written: &[SectorRange],
) -> Result<Option<Order>, ApiError> {
    let Some(geometry) = limits.zones else { return Ok(None) };
    let touched: BTreeSet<u32> = written
        .iter()
        .flat_map(|range| geometry.zone_of(range.start)..=geometry.zone_of(Sector(range.end().0 - 1)))
        .collect();
    let mut zones = Vec::new();
    for zone in touched {
        let described = describe(&server.engine, volume, geometry.start_of(zone), 1).await?;
        zones.extend(described.first().and_then(|zone| probe(zone, limits.logical_block)));
    }
    let block = limits.logical_block.bytes().0;
    Ok((!zones.is_empty()).then_some(Order::Resync { disk, block, zones }))
}

/// A place in a zone that neither the disk nor the kernel takes a write at: a block beyond the pointer, behind which the
/// kernel's own one lies. Where that would pass the end of the zone, just below the pointer: that may be where the kernel
/// would write, but then there is at most one block left for it. An empty zone has none; nothing was copied to it.
fn probe(zone: &ZoneDescriptor, block: Sectors) -> Option<ZoneProbe> {
    let end = match zone.condition {
        ZoneCondition::Full => zone.start + zone.capacity,
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed => zone.wp,
        ZoneCondition::NotWp | ZoneCondition::Empty | ZoneCondition::Readonly | ZoneCondition::Offline => {
            zone.start
        }
    };
    let below = Sector(end.0.checked_sub(block.0)?);
    let beyond = end + block;
    let place = if beyond + block <= zone.start + zone.capacity { beyond } else { below };
    (below >= zone.start).then_some(ZoneProbe { start: zone.start.bytes().0, place: place.bytes().0 })
}

fn geometry(name: &str, limits: &Limits) -> Result<ZoneGeometry, ApiError> {
    limits.zones.ok_or_else(|| not_zoned(format!("disk {name} is not zoned")))
}

/// The error of what only a zoned disk does.
pub(crate) fn not_zoned(why: impl Into<String>) -> ApiError {
    ApiError::new(409, "not-zoned", why).hint("a disk made with `ublk add --zoned` is")
}

/// The first sectors of the zones that a request names.
fn starts(zones: &ZoneGeometry, limits: &Limits, request: &ZoneRequest) -> Result<Vec<Sector>, ApiError> {
    let (offset, size) = (request.offset.0, zones.size.bytes().0);
    if !offset.is_multiple_of(size) || offset >= limits.capacity.bytes().0 {
        let why = format!("offset {offset}: not the start of a zone, of which each has {size} bytes");
        return Err(ApiError::bad_request(why));
    }
    let first = zones.zone_of(Sector(Bytes(offset).whole_sectors().0));
    let left = zones.zones(limits.capacity) - first;
    let count = request.count.unwrap_or(left);
    if !(1..=left).contains(&count) {
        return Err(ApiError::bad_request(format!("count {count}: must be from 1 to {left}")));
    }
    Ok((first..first + count).map(|zone| zones.start_of(zone)).collect())
}

/// Zones fail. Those that failed worse already and conventional ones stay as they are.
fn fail(server: &Server, volume: VolumeId, starts: &[Sector], failure: ZoneFailure) -> Empty {
    for &start in starts {
        server.engine.control(Control::FailZone(volume, start, failure));
    }
    tracing::info!("{} zones from sector {} on fail: {failure:?}", starts.len(), starts[0].0);
    Empty {}
}

async fn by_ioctl(order: Order) -> Result<Empty, ApiError> {
    let report = coherence::ask(order).await.map_err(|error| match error {
        HelperError::Failed(why) => ApiError::new(422, "zone-action", why)
            .hint("`ublk zone report` shows the conditions, dmesg the zone that failed"),
        HelperError::Process(_) | HelperError::Silent => {
            ApiError::from_lines(500, "coherence", &error.to_string())
        }
    })?;
    match report.claims.first() {
        Some(claim) => Err(ApiError::new(409, "claimed", claim.clone())
            .hint("unmount or release it; --force changes zones below its user")),
        None => Ok(Empty {}),
    }
}

async fn directly(
    server: &Server,
    found: Found,
    limits: &Limits,
    action: ZoneAction,
    starts: &[Sector],
) -> Result<Empty, ApiError> {
    let whole = limits.zones.is_some_and(|zones| zones.zones(limits.capacity) as usize == starts.len());
    if action == ZoneAction::Reset && whole {
        let completion = request(&server.engine, found.volume, Op::ZoneResetAll).await;
        return answered("the reset of all zones", completion.status);
    }
    for &zone in starts {
        let completion = request(&server.engine, found.volume, Op::ZoneMgmt { zone, action }).await;
        answered(&format!("the zone at {}", zone.bytes().0), completion.status)?;
    }
    Ok(Empty {})
}

async fn describe(
    engine: &Engine,
    volume: VolumeId,
    from: Sector,
    max: u32,
) -> Result<Vec<ZoneDescriptor>, ApiError> {
    let completion = request(engine, volume, Op::ReportZones { from, max }).await;
    answered("the report", completion.status)?;
    Ok(completion.zones)
}

async fn request(engine: &Engine, volume: VolumeId, op: Op) -> Completion {
    engine.call(volume, op, Flags::NONE, None).await.completion
}

fn answered(what: &str, status: BlkStatus) -> Result<Empty, ApiError> {
    if status.is_ok() { Ok(Empty {}) } else { Err(ApiError::of_status(what, status)) }
}

impl From<ZoneType> for ZoneTypeName {
    fn from(kind: ZoneType) -> Self {
        match kind {
            ZoneType::Conventional => Self::Conventional,
            ZoneType::SeqwriteReq => Self::SeqWriteRequired,
        }
    }
}

impl From<ZoneCondition> for ZoneConditionName {
    fn from(condition: ZoneCondition) -> Self {
        match condition {
            ZoneCondition::NotWp => Self::NotWp,
            ZoneCondition::Empty => Self::Empty,
            ZoneCondition::ImpOpen => Self::ImpOpen,
            ZoneCondition::ExpOpen => Self::ExpOpen,
            ZoneCondition::Closed => Self::Closed,
            ZoneCondition::Readonly => Self::ReadOnly,
            ZoneCondition::Full => Self::Full,
            ZoneCondition::Offline => Self::Offline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(condition: ZoneCondition, wp: u64) -> ZoneDescriptor {
        ZoneDescriptor {
            start: Sector(2048),
            len: Sectors(2048),
            capacity: Sectors(1024),
            wp: Sector(wp),
            kind: ZoneType::SeqwriteReq,
            condition,
        }
    }

    #[test]
    fn the_probe_lies_off_the_pointer() {
        let at = |zone: ZoneDescriptor| probe(&zone, Sectors(8)).map(|probe| probe.place / 512);
        assert_eq!(at(zone(ZoneCondition::ImpOpen, 2056)), Some(2064));
        assert_eq!(at(zone(ZoneCondition::Closed, 3056)), Some(3064));
        assert_eq!(at(zone(ZoneCondition::Closed, 3064)), Some(3056), "beyond is the end of the zone");
        assert_eq!(at(zone(ZoneCondition::Full, 4096)), Some(3064));
        assert_eq!(at(zone(ZoneCondition::ExpOpen, 2048)), None, "nothing is written");
        for condition in
            [ZoneCondition::Empty, ZoneCondition::NotWp, ZoneCondition::Offline, ZoneCondition::Readonly]
        {
            assert_eq!(at(zone(condition, 2048)), None, "{condition:?}");
        }
    }

    #[test]
    fn a_request_names_whole_zones_of_the_disk() {
        let zones = ZoneGeometry::new(Sectors(2048));
        let mut limits = Limits::new(Sectors(2048 * 4), Sectors(1), Sectors(8));
        limits.zones = Some(zones);
        let starts = |offset: u64, count| {
            let action = ZoneActionName::Reset;
            let request = ZoneRequest { action, offset: Bytes(offset), count, force: false };
            starts(&zones, &limits, &request)
                .map(|starts| starts.iter().map(|s| s.0 / 2048).collect::<Vec<_>>())
        };
        assert_eq!(starts(1 << 20, Some(2)).unwrap(), [1, 2]);
        assert_eq!(starts(2 << 20, None).unwrap(), [2, 3]);
        for (offset, count) in [(512, None), (4 << 20, None), (0, Some(0)), (0, Some(5)), (1 << 20, Some(4))]
        {
            assert_eq!(starts(offset, count).unwrap_err().code, "bad-request", "{offset} {count:?}");
        }
    }
}
