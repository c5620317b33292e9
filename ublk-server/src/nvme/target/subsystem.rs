//! The subsystem: its namespaces, its controllers, and who may connect.

use super::controller::{Controller, Kind};
use super::{ConnectionId, NAMESPACES_MAX, Queue, Reply, Tag};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::identify::CommandSet;
use crate::nvme::wire::status::Status;
use emulation::{Instant, Limits, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// What a subsystem is made with.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: String,
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// The version of the program, at most 8 characters.
    pub firmware: String,
    /// The hosts that may connect, by NQN; none: any.
    pub allow_hosts: BTreeSet<String>,
    /// Writes become durable by Flush.
    pub volatile_cache: bool,
    /// The most I/O queues of a controller.
    pub queues_max: u16,
    /// The most controllers at a time.
    pub controllers_max: usize,
    /// Where hosts reach it.
    pub portals: Vec<SocketAddr>,
}

/// A namespace: a volume of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its number, from 1.
    pub nsid: u32,
    /// The volume.
    pub volume: VolumeId,
    /// UUID.
    pub uuid: [u8; 16],
    /// NGUID.
    pub nguid: [u8; 16],
    /// The limits of the volume; read-only where this door does not write.
    pub limits: Limits,
}

impl Namespace {
    /// Its command set.
    pub fn command_set(&self) -> CommandSet {
        if self.limits.zones.is_some() { CommandSet::Zoned } else { CommandSet::Nvm }
    }
}

/// The namespaces of a subsystem, by number.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    by_nsid: Vec<Option<Namespace>>,
}

impl Namespaces {
    /// The namespace with a number.
    pub fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get(usize::try_from(nsid).ok()?.checked_sub(1)?)?.as_ref()
    }

    /// The namespace that a command names.
    ///
    /// # Errors
    /// The number is none at all, or that of no active namespace.
    pub fn named(&self, nsid: u32) -> Result<&Namespace, Status> {
        self.get(nsid).ok_or(match (1..=NAMESPACES_MAX).contains(&nsid) {
            true => Status::INVALID_FIELD.dnr(),
            false => Status::INVALID_NAMESPACE.dnr(),
        })
    }

    /// All of them, by rising number.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_nsid.iter().flatten()
    }

    /// The number of a volume's namespace: the same after a new start of the server, which a host that connects again
    /// counts on, as long as volumes have low numbers; else the lowest that is free.
    fn free(&self, volume: VolumeId) -> Option<u32> {
        let own = volume.0.saturating_add(1);
        let mut numbers = std::iter::once(own).chain(1..=NAMESPACES_MAX);
        numbers.find(|&nsid| nsid <= NAMESPACES_MAX && self.get(nsid).is_none())
    }

    fn put(&mut self, namespace: Namespace) {
        let index = namespace.nsid as usize - 1;
        if self.by_nsid.len() <= index {
            self.by_nsid.resize(index + 1, None);
        }
        self.by_nsid[index] = Some(namespace);
    }
}

/// What I/O queues have to know of the rest.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The namespaces.
    pub namespaces: Arc<Namespaces>,
    /// The host has enabled Copy format 2h.
    pub cross_copy: bool,
}

/// The numbers of the health log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Bytes read by hosts.
    pub read: u64,
    /// Bytes written by hosts.
    pub written: u64,
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
}

/// What every call is given.
pub struct Cx<'a> {
    /// The time.
    pub now: Instant,
    /// The address at which this host reached us.
    pub local: SocketAddr,
    /// Only the discovery subsystem is served at that address.
    pub discovery_only: bool,
    /// Reads the numbers of the health log.
    pub health: &'a dyn Fn() -> Health,
    /// What the shell has to do elsewhere.
    pub effects: &'a mut Vec<Effect>,
}

impl std::fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cx").field("now", &self.now).field("local", &self.local).finish_non_exhaustive()
    }
}

/// What a call has the shell do on other connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End a connection.
    Close(ConnectionId, &'static str),
    /// Answer a command that was parked.
    Complete {
        /// Its connection.
        connection: ConnectionId,
        /// The command.
        tag: Tag,
        /// How it ended.
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
    },
    /// End a command early, if it is still there.
    Abort {
        /// Its connection.
        connection: ConnectionId,
        /// The host's number for it.
        cid: u16,
    },
}

/// A subsystem, with the controllers that hosts have made of it.
#[derive(Debug)]
pub struct Target {
    pub(super) config: SubsystemConfig,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) controllers: BTreeMap<u16, Controller>,
    /// The connections that have a queue.
    pub(super) queues: BTreeMap<ConnectionId, Queue>,
    pub(super) last_cntlid: u16,
    generation: u64,
}

impl Target {
    /// A subsystem without namespaces and controllers.
    pub fn new(config: SubsystemConfig) -> Self {
        Self {
            config,
            namespaces: Arc::default(),
            controllers: BTreeMap::new(),
            queues: BTreeMap::new(),
            last_cntlid: 0,
            generation: 0,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &SubsystemConfig {
        &self.config
    }

    /// Rises when a [`View`] has changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn changed(&mut self) {
        self.generation += 1;
    }

    /// What the queue of a connection has to know.
    pub fn view(&self, connection: ConnectionId) -> View {
        let controller =
            self.queues.get(&connection).and_then(|queue| self.controllers.get(&queue.controller));
        View {
            namespaces: Arc::clone(&self.namespaces),
            cross_copy: controller.is_some_and(Controller::cross_copy),
        }
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The connected hosts: the host's name, and its queues with the admin queue.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        let nvm = self.controllers.values().filter(|controller| controller.kind == Kind::Nvm);
        nvm.map(|controller| (controller.host_nqn.as_str(), controller.connections.len()))
    }

    /// Adds a namespace for a volume and gives its number; `None` when there are too many.
    pub fn add_namespace(
        &mut self,
        volume: VolumeId,
        name: &str,
        limits: Limits,
        effects: &mut Vec<Effect>,
    ) -> Option<u32> {
        let nsid = self.namespaces.free(volume)?;
        let (uuid, nguid) = (identifier(&["uuid", name]), identifier(&["nguid", name]));
        Arc::make_mut(&mut self.namespaces).put(Namespace { nsid, volume, uuid, nguid, limits });
        self.namespace_changed(nsid, effects);
        Some(nsid)
    }

    /// Takes the namespace of a volume away, if there is one.
    pub fn remove_namespace(&mut self, volume: VolumeId, effects: &mut Vec<Effect>) {
        let found = self.namespaces.iter().find(|namespace| namespace.volume == volume);
        if let Some(nsid) = found.map(|namespace| namespace.nsid) {
            Arc::make_mut(&mut self.namespaces).by_nsid[nsid as usize - 1] = None;
            self.namespace_changed(nsid, effects);
        }
    }

    /// The limits of a volume have changed.
    pub fn set_limits(&mut self, volume: VolumeId, limits: Limits, effects: &mut Vec<Effect>) {
        let namespaces = Arc::make_mut(&mut self.namespaces);
        let found = namespaces.by_nsid.iter_mut().flatten().find(|namespace| namespace.volume == volume);
        if let Some(namespace) = found {
            let nsid = namespace.nsid;
            namespace.limits = limits;
            self.namespace_changed(nsid, effects);
        }
    }

    fn namespace_changed(&mut self, nsid: u32, effects: &mut Vec<Effect>) {
        self.changed();
        for controller in self.controllers.values_mut().filter(|controller| controller.kind == Kind::Nvm) {
            controller.namespace_changed(nsid, effects);
        }
    }

    /// Does a fabrics or admin command. `data` is what the host sent with it.
    pub fn execute(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        tag: Tag,
        sqe: &Sqe,
        data: &[u8],
    ) -> Reply {
        self.dispatch(cx, connection, tag, sqe, data).unwrap_or_else(Reply::from)
    }

    /// Notes a command that failed in the error log of its controller.
    pub fn failed(&mut self, queue: Queue, sqe: &Sqe, status: Status) {
        if let Some(controller) = self.controllers.get_mut(&queue.controller).filter(|_| !status.is_ok()) {
            controller.errors.note(queue.qid, sqe, status);
        }
    }

    /// Ends a command of an admin queue early, if it is one that waits here.
    pub fn abort(&mut self, connection: ConnectionId, tag: Tag, effects: &mut Vec<Effect>) {
        let queue = self.queues.get(&connection).filter(|queue| queue.is_admin());
        if let Some(controller) = queue.and_then(|queue| self.controllers.get_mut(&queue.controller)) {
            controller.abort_event_request(tag, effects);
        }
    }

    /// A connection has ended. With its admin queue a controller ends, and its other queues with it.
    pub fn disconnected(&mut self, connection: ConnectionId, effects: &mut Vec<Effect>) {
        let Some(queue) = self.queues.remove(&connection) else { return };
        if queue.qid == 0 {
            self.end_controller(queue.controller, "its admin queue ended", effects);
        } else if let Some(controller) = self.controllers.get_mut(&queue.controller) {
            controller.connections.remove(&queue.qid);
        }
    }

    fn end_controller(&mut self, cntlid: u16, why: &'static str, effects: &mut Vec<Effect>) {
        if let Some(controller) = self.controllers.remove(&cntlid) {
            for connection in controller.connections.into_values() {
                if self.queues.remove(&connection).is_some() {
                    effects.push(Effect::Close(connection, why));
                }
            }
        }
    }

    /// Ends the controllers whose host has been silent for too long, and says when to ask again.
    pub fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) -> Option<Instant> {
        let late = |controller: &&Controller| controller.deadline.is_some_and(|deadline| deadline <= now);
        let expired: Vec<u16> =
            self.controllers.values().filter(late).map(|controller| controller.id).collect();
        for cntlid in expired {
            self.end_controller(cntlid, "the keep alive timer of its controller ran out", effects);
        }
        self.controllers.values().filter_map(|controller| controller.deadline).min()
    }
}

/// 128 bits that follow from the parts: the same for the same parts, and in the form of a UUID of version 8.
pub fn identifier(parts: &[&str]) -> [u8; 16] {
    // FNV-1a of 128 bits, then mixed so that every bit depends on the whole.
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }
    for _ in 0..4 {
        hash = (hash ^ hash >> 61).wrapping_mul(PRIME << 3 | 0x5bd1_e995);
    }
    let mut bytes = hash.to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// An identifier as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_stable_and_differ_with_every_part() {
        let one = identifier(&["uuid", "pool/disk"]);
        assert_eq!(one, identifier(&["uuid", "pool/disk"]));
        assert_ne!(one, identifier(&["nguid", "pool/disk"]));
        assert_ne!(identifier(&["a", "bc"]), identifier(&["ab", "c"]));
        let text = uuid_text(&one);
        assert_eq!((text.len(), text.as_bytes()[14]), (36, b'8'), "{text}");
    }
}
