//! The control API: HTTP and JSON on a Unix socket, one for each pool. The commands are its first client.
//!
//! The socket is `pools/POOL/control.sock` in the state directory; only its owner can connect. ID is the name of a disk,
//! its number, or `ublkbN`. Addresses and lengths are bytes; a size in a body may be a text such as `"64K"`.
//!
//! | request | does |
//! |---|---|
//! | `GET /v1/pool` | the pool, its use of space, the names of its disks |
//! | `GET /v1/disks`, `GET /v1/disks/ID` | disks: [`api::Disk`] |
//! | `POST /v1/disks` | adds a disk: [`api::AddDisk`]; what is missing has the default of `ublk add` |
//! | `DELETE /v1/disks/ID?force=` | deletes it; `force` although it is mounted or held; the last one ends the server |
//! | `GET /v1/disks/ID/limits` | what can change: [`api::LimitsView`] |
//! | `PATCH /v1/disks/ID/limits` | changes what is named: [`api::LimitsPatch`] |
//! | `GET /v1/disks/ID/stats` | the ledger: [`api::Stats`] |
//! | `POST /v1/disks/ID/stats` | the ledger, and sets it to 0 with `{"reset":true}` |
//! | `POST /v1/disks/ID/copies` | starts a copy into ID: [`api::CopyRequest`]; answers at once with the job |
//! | `GET /v1/disks/ID/copies`, `.../copies/JOB` | jobs: [`api::Job`]; the last 64 that ended are remembered |
//! | `DELETE /v1/disks/ID/copies/JOB` | cancels it before its next link |
//! | `GET /v1/disks/ID/data?offset=&length=` | reads up to 1 MiB |
//! | `PUT /v1/disks/ID/data?offset=&fua=` | writes the body, up to 1 MiB |
//! | `DELETE /v1/disks/ID/data?offset=&length=` | discards |
//! | `GET /v1/disks/ID/zones?offset=&count=` | the zones from a byte on: [`api::ZoneReport`] |
//! | `POST /v1/disks/ID/zones` | opens, closes, finishes, resets zones, or has them fail: [`api::ZoneRequest`] |
//! | `GET /metrics` | the counters as Prometheus reads them |
//!
//! Data is read and written below the page cache of the block device. Where there is one, PUT and DELETE of data are
//! refused without `force=true`. A copy job writes the host's cached writes back first and drops its cached pages
//! of the destination afterwards; see [`crate::coherence`].
//!
//! Every answer that is not 2xx is `{"error":{"code","message","hint"}}`: see [`api::ApiError`]. A copy that the disk
//! refuses has the reason as its code: `copy-max-bytes`, `copy-overlap`, `out-of-range`, `nospc` and so on, the names of
//! [`emulation::BlkStatus`].

pub mod api;
pub mod client;
pub mod fault_rules;
pub(crate) mod handle;
pub(crate) mod http;
pub(crate) mod jobs;
pub(crate) mod metrics;
pub(crate) mod split;
mod taps;
pub(crate) mod zones;
