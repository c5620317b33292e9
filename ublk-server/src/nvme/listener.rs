//! The sockets of the door: a thin shell of tokio around the target.

mod serve;

use super::target::{
    ConnectionId, ConnectionLimits, Effect, Health, Namespace, Reply, SubsystemConfig, Tag, Target, Wire,
};
use crate::engine::Engine;
use emulation::{Limits, VolumeId};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The most connections.
const CONNECTIONS_MAX: usize = 1024;
/// The most threads that move bytes.
const THREADS_MAX: usize = 4;
/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(250);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long connections may take to end with the door.
const END_MAX: Duration = Duration::from_secs(2);

/// What a door is made with.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// The subsystem; its portals are filled in.
    pub subsystem: SubsystemConfig,
    /// Where it listens; port 0: any free one.
    pub listen: SocketAddr,
    /// Where the discovery controller listens alone; port 0: any free one.
    pub discovery: Option<SocketAddr>,
    /// What each connection may use.
    pub limits: ConnectionLimits,
}

/// The door.
#[derive(Debug)]
pub struct Door {
    shared: Arc<Shared>,
    runtime: Runtime,
    listen: SocketAddr,
    discovery: Option<SocketAddr>,
    /// What will take connections; whether for discovery alone.
    listeners: Mutex<Vec<(tokio::net::TcpListener, bool)>>,
}

/// Bytes moved by connections that have ended and those that have not.
#[derive(Debug, Default)]
struct Totals {
    received: AtomicU64,
    sent: AtomicU64,
}

/// What connections share.
#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    limits: ConnectionLimits,
    target: Mutex<Target>,
    /// That of the target, to be looked at without its lock.
    generation: AtomicU64,
    connections: Mutex<BTreeMap<ConnectionId, UnboundedSender<Message>>>,
    next: AtomicU64,
    totals: Totals,
}

/// What a connection is told by others.
#[derive(Debug)]
enum Message {
    /// End.
    Close(&'static str),
    /// A command that was parked has ended.
    Complete(Tag, Reply),
    /// End the command with this number of the host's.
    Abort(u16),
    /// Look at the time.
    Tick,
}

impl Door {
    /// Listens. Hosts wait until [`Self::serve`].
    ///
    /// # Errors
    /// An address cannot be bound, or threads cannot be made.
    pub fn start(engine: Arc<Engine>, mut config: DoorConfig) -> io::Result<Self> {
        let listener = bind(config.listen)?;
        let discovery = config.discovery.map(bind).transpose()?;
        let listen = listener.local_addr()?;
        let discovery_address = discovery.as_ref().map(TcpListener::local_addr).transpose()?;
        config.subsystem.portals = vec![listen];
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(1)
            .thread_name("ublk-nvme")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            engine,
            limits: config.limits,
            target: Mutex::new(Target::new(config.subsystem)),
            generation: AtomicU64::new(0),
            connections: Mutex::default(),
            next: AtomicU64::new(1),
            totals: Totals::default(),
        });
        let _inside = runtime.enter();
        let mut listeners = vec![(tokio::net::TcpListener::from_std(listener)?, false)];
        if let Some(discovery) = discovery {
            listeners.push((tokio::net::TcpListener::from_std(discovery)?, true));
        }
        runtime.spawn(tick(Arc::clone(&shared)));
        drop(_inside);
        let listeners = Mutex::new(listeners);
        Ok(Self { shared, runtime, listen, discovery: discovery_address, listeners })
    }

    /// Where it listens.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the discovery controller listens alone.
    pub fn discovery(&self) -> Option<SocketAddr> {
        self.discovery
    }

    /// The name of the subsystem.
    pub fn nqn(&self) -> String {
        self.shared.target().config().nqn.clone()
    }

    /// Makes a namespace of a volume; `None` when there are too many. `name` is what its identifiers follow from.
    pub fn add(&self, volume: VolumeId, name: &str, limits: Limits) -> Option<u32> {
        self.shared.with_target(|target, effects| target.add_namespace(volume, name, limits, effects))
    }

    /// Takes connections, now that the namespaces are there: a host that connects again takes one that is missing for
    /// gone, and fails its I/O.
    pub fn serve(&self) {
        for (listener, discovery_only) in self.listeners.lock().expect("a panic ends the process").drain(..) {
            self.runtime.spawn(accept(Arc::clone(&self.shared), listener, discovery_only));
        }
    }

    /// Takes the namespace of a volume away.
    pub fn remove(&self, volume: VolumeId) {
        self.shared.with_target(|target, effects| target.remove_namespace(volume, effects));
    }

    /// The limits of a volume have changed: hosts are told.
    pub fn set_limits(&self, volume: VolumeId, limits: Limits) {
        self.shared.with_target(|target, effects| target.set_limits(volume, limits, effects));
    }

    /// The namespace of a volume.
    pub fn namespace(&self, volume: VolumeId) -> Option<Namespace> {
        let target = self.shared.target();
        target.namespaces().iter().find(|namespace| namespace.volume == volume).cloned()
    }

    /// The number of namespaces.
    pub fn namespaces(&self) -> usize {
        self.shared.target().namespaces().iter().count()
    }

    /// The connected hosts: name, and number of queues with the admin queue.
    pub fn hosts(&self) -> Vec<(String, usize)> {
        self.shared.target().hosts().map(|(host, queues)| (host.to_string(), queues)).collect()
    }

    /// Bytes moved over all connections so far, without those of TCP and below.
    pub fn wire(&self) -> Wire {
        let totals = &self.shared.totals;
        Wire { received: totals.received.load(Ordering::Relaxed), sent: totals.sent.load(Ordering::Relaxed) }
    }

    /// Ends every connection, and does not listen any more. Blocks, not for long.
    pub fn stop(self) {
        for connection in self.shared.connections().values() {
            // One that has ended needs no word.
            drop(connection.send(Message::Close("the door is closed")));
        }
        let shared = Arc::clone(&self.shared);
        let ended = async move {
            while !shared.connections().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Those that are not done by then are cut off.
        let patience = async { tokio::time::timeout(END_MAX, ended).await };
        drop(self.runtime.block_on(patience));
        self.runtime.shutdown_timeout(END_MAX);
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Shared {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().expect("a panic ends the process")
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, UnboundedSender<Message>>> {
        self.connections.lock().expect("a panic ends the process")
    }

    /// Changes the target, and carries out what follows from it.
    fn with_target<R>(&self, change: impl FnOnce(&mut Target, &mut Vec<Effect>) -> R) -> R {
        let mut effects = Vec::new();
        let result = {
            let mut target = self.target();
            let result = change(&mut target, &mut effects);
            self.generation.store(target.generation(), Ordering::Release);
            result
        };
        if !effects.is_empty() {
            self.apply(effects);
        }
        result
    }

    fn apply(&self, effects: Vec<Effect>) {
        let connections = self.connections();
        for effect in effects {
            let (id, message) = match effect {
                Effect::Close(id, why) => (id, Message::Close(why)),
                Effect::Complete { connection, tag, status, result } => {
                    (connection, Message::Complete(tag, Reply::Done { status, result, data: Vec::new() }))
                }
                Effect::Abort { connection, cid } => (connection, Message::Abort(cid)),
            };
            if let Some(connection) = connections.get(&id) {
                // One that has ended needs no word.
                drop(connection.send(message));
            }
        }
    }

    /// The numbers of the health log: those of all namespaces together.
    fn health(&self, volumes: &[VolumeId]) -> Health {
        self.engine.with_pool(|pool| {
            volumes.iter().fold(Health::default(), |sum, volume| {
                let ledger = pool.ledger(*volume);
                Health {
                    read: sum.read + ledger.door_read.0,
                    written: sum.written + ledger.door_written.0,
                    reads: sum.reads + ledger.commands[0],
                    writes: sum.writes + ledger.commands[1],
                }
            })
        })
    }
}

/// Takes connections, as long as there is room.
async fn accept(shared: Arc<Shared>, listener: tokio::net::TcpListener, discovery_only: bool) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let id = ConnectionId(shared.next.fetch_add(1, Ordering::Relaxed));
                let (sender, messages) = unbounded_channel();
                {
                    let mut connections = shared.connections();
                    if connections.len() >= CONNECTIONS_MAX {
                        tracing::warn!("nvme: {peer} refused: {CONNECTIONS_MAX} connections are the most");
                        continue;
                    }
                    connections.insert(id, sender);
                }
                tokio::spawn(serve::run(Arc::clone(&shared), stream, peer, id, messages, discovery_only));
            }
            Err(error) => {
                tracing::warn!("nvme: a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Looks at the timers.
async fn tick(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let now = shared.engine.now();
        shared.with_target(|target, effects| target.tick(now, effects));
        for connection in shared.connections().values() {
            // One that has ended needs no word.
            drop(connection.send(Message::Tick));
        }
    }
}
