//! What a machine needs for disks, checked one by one, each with its own words.

use crate::control::api::ApiError;
use crate::server::ublk_error;
use crate::state::State;
use crate::ublk::control;
use serde::Serialize;

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) ok: bool,
    /// What was found, or what is wrong.
    pub(super) found: String,
    /// What to do when it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl Check {
    fn new(name: &'static str, result: Result<String, ApiError>) -> Self {
        match result {
            Ok(found) => Self { name, ok: true, found, hint: None },
            Err(error) => Self { name, ok: false, found: error.message, hint: error.hint },
        }
    }
}

/// Every check, in an order in which the first that fails is the cause of the rest.
pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::new("state directory", state()),
        Check::new("io_uring", io_uring()),
        Check::new("kernel", kernel()),
        Check::new("ublk driver", driver()),
        Check::new("device limit", device_limit()),
        Check::new("page cache check", cachestat()),
    ]
}

fn state() -> Result<String, ApiError> {
    let state = State::open().map_err(|error| ApiError::from_lines(500, "state", &error.to_string()))?;
    Ok(state.base().display().to_string())
}

fn io_uring() -> Result<String, ApiError> {
    let ring = io_uring::IoUring::new(2).map_err(|error| ublk_error(&crate::ublk::UblkError::ring(error)))?;
    drop(ring);
    Ok("rings can be made".to_string())
}

fn kernel() -> Result<String, ApiError> {
    control::check_kernel().map_err(|error| ublk_error(&error))?;
    Ok(format!("Linux {}", rustix::system::uname().release().to_string_lossy()))
}

fn driver() -> Result<String, ApiError> {
    let features = control::features().map_err(|error| ublk_error(&error))?;
    Ok(format!("features 0x{features:x}"))
}

/// The driver's own limit. Until 6.14 it counts every device, later those of users who are not root.
fn device_limit() -> Result<String, ApiError> {
    let parameter = std::fs::read_to_string("/sys/module/ublk_drv/parameters/ublks_max");
    let Ok(most) = parameter.unwrap_or_default().trim().parse::<usize>() else {
        return Ok("not known without the driver".to_string());
    };
    let count = control::device_ids().map_or(0, |ids| ids.len());
    if count >= most {
        return Err(ublk_error(&crate::ublk::UblkError::DeviceLimit));
    }
    Ok(format!("{count} devices, the driver's limit is {most}"))
}

fn cachestat() -> Result<String, ApiError> {
    let failed = |error: std::io::Error| ApiError::new(500, "cachestat", error.to_string());
    let own = std::fs::File::open("/proc/self/exe").map_err(failed)?;
    match crate::coherence::cached_pages(&own, 0, 4096).map_err(failed)? {
        Some(_) => Ok("cachestat(2) answers".to_string()),
        None => Ok("no cachestat(2): stale pages after a copy are dropped but not counted".to_string()),
    }
}
