//! The NVMe/TCP door of a pool: opened for the first disk that wants it, closed with the last.

use crate::config::{CacheMode, NvmeConfig, PoolConfig, PoolType};
use crate::control::api::{ApiError, NvmeHost, NvmeView};
use crate::engine::Engine;
use crate::nvme::listener::{Door, DoorConfig};
use crate::nvme::target::{
    ConnectionLimits, NAMESPACES_MAX, QUEUE_ENTRIES_MAX, SubsystemConfig, identifier, uuid_text,
};
use emulation::{CopyMode, Limits, VolumeId};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most I/O queues of a controller.
const QUEUES_MAX: u16 = 64;
/// The most controllers of the subsystem.
const CONTROLLERS_MAX: usize = 64;

/// The door of a pool, if it has one.
#[derive(Debug)]
pub(super) struct NvmeDoor {
    pool: PoolConfig,
    /// What the names of subsystem and namespaces follow from.
    scope: String,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    /// As the first disk has it.
    config: NvmeConfig,
    door: Door,
}

impl NvmeDoor {
    /// The door of a pool. One that lives in a file has the names that follow from its `identifier`, wherever it is
    /// opened and whatever the pool is called there.
    pub(super) fn new(pool: PoolConfig, identifier: Option<&str>) -> Self {
        let scope = match identifier.filter(|_| pool.kind == PoolType::File) {
            Some(identifier) => identifier.to_string(),
            None => format!("{}/{}", machine(), pool.name),
        };
        Self { pool, scope, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().expect("a panic ends the process")
    }

    /// Opens the door, or finds it open as `config` has it.
    pub(super) fn open(&self, engine: &Arc<Engine>, config: &NvmeConfig) -> Result<(), ApiError> {
        let mut open = self.lock();
        if let Some(open) = &*open {
            if open.config != *config {
                let why = format!(
                    "pool {} is served over NVMe/TCP at {} with other options",
                    self.pool.name, open.config.listen
                );
                return Err(
                    ApiError::new(409, "nvme", why).hint("repeat the options of the pool's other disks")
                );
            }
            if open.door.namespaces() >= NAMESPACES_MAX as usize {
                let why =
                    format!("pool {} has {NAMESPACES_MAX} namespaces: that is the most", self.pool.name);
                return Err(ApiError::new(409, "nvme", why).hint("use another pool"));
            }
            return Ok(());
        }
        let id = identifier(&["subsystem", &self.scope]);
        let serial = identifier(&["serial", &self.scope]);
        let subsystem = SubsystemConfig {
            nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid_text(&id)),
            serial: serial[..10].iter().map(|byte| format!("{byte:02x}")).collect(),
            firmware: env!("CARGO_PKG_VERSION").to_string(),
            allow_hosts: config.allow_hosts.iter().cloned().collect(),
            volatile_cache: self.pool.cache == CacheMode::Volatile,
            queues_max: QUEUES_MAX,
            controllers_max: CONTROLLERS_MAX,
            portals: Vec::new(),
        };
        let door = DoorConfig {
            subsystem,
            listen: config.listen,
            discovery: config.discovery,
            limits: ConnectionLimits::default(),
        };
        let door = Door::start(Arc::clone(engine), door).map_err(|error| {
            let at = config.discovery.map_or(String::new(), |discovery| format!(" or {discovery}"));
            let why = format!("NVMe/TCP at {}{at}: {error}", config.listen);
            ApiError::new(409, "nvme", why).hint("choose another address, or port 0 for any free port")
        })?;
        tracing::info!(
            "nvme: {} at {}, discovery {:?}, hosts {:?}, {QUEUES_MAX} I/O queues of {QUEUE_ENTRIES_MAX} entries",
            door.nqn(),
            door.listen(),
            door.discovery(),
            config.allow_hosts
        );
        *open = Some(Open { config: config.clone(), door });
        Ok(())
    }

    /// Makes a namespace of a disk. The door is open.
    pub(super) fn add(&self, volume: VolumeId, disk: &str, limits: Limits) {
        log_clamped(disk, &limits);
        let name = format!("{}/{disk}", self.scope);
        if let Some(open) = &*self.lock() {
            let nsid = open.door.add(volume, &name, limits);
            tracing::info!("nvme: disk {disk} is namespace {nsid:?}");
        }
    }

    /// Lets hosts in: every disk that there is to be for now is a namespace.
    pub(super) fn serve(&self) {
        if let Some(open) = &*self.lock() {
            open.door.serve();
        }
    }

    /// Takes the namespace of a disk away, if it is one; closes the door that has none left. Blocks, not for long.
    pub(super) fn remove(&self, volume: VolumeId) {
        let last = {
            let mut open = self.lock();
            if let Some(open) = &*open {
                open.door.remove(volume);
            }
            open.take_if(|open| open.door.namespaces() == 0)
        };
        if let Some(open) = last {
            open.door.stop();
        }
    }

    /// The limits of a disk have changed.
    pub(super) fn set_limits(&self, volume: VolumeId, disk: &str, limits: Limits) {
        if let Some(open) = &*self.lock()
            && open.door.namespace(volume).is_some()
        {
            log_clamped(disk, &limits);
            open.door.set_limits(volume, limits);
        }
    }

    /// A disk, as the API shows it.
    pub(super) fn view(&self, volume: VolumeId) -> Option<NvmeView> {
        let open = self.lock();
        let door = &open.as_ref()?.door;
        let namespace = door.namespace(volume)?;
        let wire = door.wire();
        let hosts = door.hosts().into_iter().map(|(nqn, queues)| NvmeHost { nqn, queues }).collect();
        Some(NvmeView {
            listen: door.listen(),
            discovery: door.discovery(),
            nqn: door.nqn(),
            nsid: namespace.nsid,
            uuid: uuid_text(&namespace.uuid),
            hosts,
            received_bytes: wire.received,
            sent_bytes: wire.sent,
        })
    }
}

/// Says so when a limit is more than the wire can name.
fn log_clamped(disk: &str, limits: &Limits) {
    let blocks = limits.copy_max_bytes.0 / limits.logical_block.bytes().0;
    if blocks > u32::MAX.into() && limits.copy_mode != CopyMode::Off {
        tracing::warn!(
            "nvme: disk {disk}: MCL is {} blocks, as much as NVMe can say, not {blocks}",
            u32::MAX
        );
    }
}

/// What tells this machine from others.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").map(|id| id.trim().to_string());
    match id {
        Ok(id) if !id.is_empty() => id,
        Ok(_) | Err(_) => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}
