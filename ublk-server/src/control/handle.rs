//! What each request of the control API does, without HTTP.

use super::api::{
    AddDisk, ApiError, CopyRequest, DATA_MAX, Disk, Empty, Job, LimitsPatch, LimitsView, PanicRequest,
    PoolView, Stats,
};
use super::jobs;
use crate::coherence::{self, Order};
use crate::debug;
use crate::server::Server;
use emulation::{BlkStatus, Bytes, Flags, Op, Sector, SectorRange};
use serde::Deserialize;
use std::sync::Arc;

/// The query of `/v1/disks/ID/data`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataQuery {
    offset: u64,
    length: Option<u64>,
    #[serde(default)]
    fua: bool,
    #[serde(default)]
    force: bool,
}

/// The query of `POST /v1/disks/ID/copies`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyQuery {
    /// Answer when the job has ended.
    #[serde(default)]
    pub(crate) wait: bool,
}

/// The query of `DELETE /v1/disks/ID`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    #[serde(default)]
    force: bool,
}

/// Runs what waits for the driver on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.expect("a panic ends the process")
}

pub(crate) fn pool(server: &Server) -> PoolView {
    server.pool_view()
}

pub(crate) fn disks(server: &Server) -> Vec<Disk> {
    server.all()
}

pub(crate) fn disk(server: &Server, key: &str) -> Result<Disk, ApiError> {
    server.disk(key)
}

pub(crate) async fn add(server: Arc<Server>, config: AddDisk) -> Result<Disk, ApiError> {
    blocking(move || server.add(config, false)).await
}

/// Deletes a disk that nobody holds, or any when `force` says so.
pub(crate) async fn delete(server: Arc<Server>, key: String, query: DeleteQuery) -> Result<Empty, ApiError> {
    blocking(move || {
        let (_, found) = server.find(&key)?;
        if let Some(id) = found.id.filter(|_| !query.force) {
            check_claims(vec![id], "delete it with force")?;
        }
        server.remove(&key).map(|()| Empty {})
    })
    .await
}

/// Refuses disks that are mounted or held. Blocks.
pub(crate) fn check_claims(disks: Vec<u32>, advice: &str) -> Result<(), ApiError> {
    let report = coherence::run(&Order::Claims(disks))
        .map_err(|error| ApiError::from_lines(500, "coherence", &error.to_string()))?;
    match report.claims.first() {
        Some(claim) => {
            Err(ApiError::new(409, "claimed", claim.clone()).hint(format!("release it first, or {advice}")))
        }
        None => Ok(()),
    }
}

pub(crate) fn limits(server: &Server, key: &str) -> Result<LimitsView, ApiError> {
    Ok(server.disk(key)?.limits)
}

pub(crate) async fn set_limits(
    server: Arc<Server>,
    key: String,
    patch: LimitsPatch,
) -> Result<LimitsView, ApiError> {
    blocking(move || server.set_limits(&key, &patch)).await
}

pub(crate) fn stats(server: &Server, key: &str, reset: bool) -> Result<Stats, ApiError> {
    server.stats(key, reset)
}

pub(crate) fn copies(server: &Server, key: &str) -> Result<Vec<Job>, ApiError> {
    let (disk, _) = server.find(key)?;
    Ok(server.jobs.of(&disk))
}

pub(crate) fn start_copy(server: &Arc<Server>, key: &str, request: &CopyRequest) -> Result<Job, ApiError> {
    jobs::start(server, key, request)
}

pub(crate) async fn run_copy(
    server: &Arc<Server>,
    key: &str,
    request: &CopyRequest,
) -> Result<Job, ApiError> {
    jobs::run(server, key, request).await
}

pub(crate) fn copy(server: &Server, key: &str, job: u64) -> Result<Job, ApiError> {
    let (disk, _) = server.find(key)?;
    server.jobs.get(&disk, job)
}

pub(crate) fn cancel_copy(server: &Server, key: &str, job: u64) -> Result<Job, ApiError> {
    let (disk, _) = server.find(key)?;
    server.jobs.cancel(&server.engine, &disk, job)
}

fn range(query: DataQuery, length: u64) -> Result<SectorRange, ApiError> {
    let why = || {
        ApiError::bad_request(format!(
            "offset {}, length {length}: no whole sectors of 512 bytes",
            query.offset
        ))
    };
    if length == 0 || length > DATA_MAX {
        return Err(ApiError::bad_request(format!("length {length}: must be from 1 to {DATA_MAX}")));
    }
    let start = Bytes(query.offset).sectors().ok_or_else(why)?;
    let len = Bytes(length).sectors().ok_or_else(why)?;
    SectorRange::new(Sector(start.0), len).ok_or_else(why)
}

pub(crate) async fn read(server: &Server, key: &str, query: DataQuery) -> Result<Vec<u8>, ApiError> {
    let (_, found) = server.find(key)?;
    let length = query.length.ok_or_else(|| ApiError::bad_request("no length"))?;
    let range = range(query, length)?;
    let result = server.engine.call(found.volume, Op::Read(range), Flags::NONE, None).await;
    answered("the read", result.completion.status)?;
    Ok(result.data.unwrap_or_default())
}

pub(crate) async fn write(
    server: &Server,
    key: &str,
    query: DataQuery,
    data: Vec<u8>,
) -> Result<Empty, ApiError> {
    let (_, found) = server.find(key)?;
    beside_the_host(found.id, query.force)?;
    let length = data.len() as u64;
    if query.length.is_some_and(|said| said != length) {
        return Err(ApiError::bad_request(format!("length: the body has {length} bytes")));
    }
    let range = range(query, length)?;
    let flags = if query.fua { Flags::FUA } else { Flags::NONE };
    let result = server.engine.call(found.volume, Op::Write(range), flags, Some(data)).await;
    answered("the write", result.completion.status)
}

pub(crate) async fn discard(server: &Server, key: &str, query: DataQuery) -> Result<Empty, ApiError> {
    let (_, found) = server.find(key)?;
    beside_the_host(found.id, query.force)?;
    let length = query.length.ok_or_else(|| ApiError::bad_request("no length"))?;
    let start = Bytes(query.offset).sectors();
    let range =
        start.zip(Bytes(length).sectors()).and_then(|(start, len)| SectorRange::new(Sector(start.0), len));
    let range =
        range.ok_or_else(|| ApiError::bad_request("offset and length: no whole sectors of 512 bytes"))?;
    let result = server.engine.call(found.volume, Op::Discard(range), Flags::NONE, None).await;
    answered("the discard", result.completion.status)
}

/// A change that the host does not see leaves its page cache stale: refused where there is a block device.
fn beside_the_host(id: Option<u32>, force: bool) -> Result<(), ApiError> {
    match id.filter(|_| !force) {
        Some(id) => {
            let why =
                format!("the disk has a block device, /dev/ublkb{id}, whose cached pages would become stale");
            Err(ApiError::new(409, "has-device", why).hint("write to the block device, or add force=true"))
        }
        None => Ok(()),
    }
}

fn answered(what: &str, status: BlkStatus) -> Result<Empty, ApiError> {
    if status.is_ok() { Ok(Empty {}) } else { Err(ApiError::of_status(what, status)) }
}

pub(crate) fn arm_panic(server: &Server, request: PanicRequest) -> Result<Empty, ApiError> {
    if !server.debug {
        return Err(ApiError::new(404, "not-found", "this server was not started for tests"));
    }
    tracing::info!("the next {:?} thread will panic", request.thread);
    debug::arm(request.thread);
    Ok(Empty {})
}
