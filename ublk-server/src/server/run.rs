//! The life of a server, from its configuration to its end.

use super::disks::{Server, state_error};
use super::{Readiness, StartConfig};
use crate::config::PoolType;
use crate::control::api::ApiError;
use crate::control::http;
use crate::logging;
use crate::signals::Signals;
use crate::state::{PoolRecord, Process, State, StateError};
use crate::store::header::identifier;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How long requests of the control API, and then their threads, may go on when the server ends.
const API_END: Duration = Duration::from_secs(2);
/// How long the last flush may take.
const FLUSH: Duration = Duration::from_secs(30);
/// How long the workers of the engine may take to end.
const ENGINE_END: Duration = Duration::from_secs(10);

/// Serves a new pool until its last disk is deleted or a signal says so. `ready` is told once how it started.
/// True when everything ended well.
pub fn run(mut config: StartConfig, signals: &Signals, ready: impl FnOnce(Readiness)) -> bool {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    match start(&mut config) {
        Ok(running) => {
            let disk = running.server.all().into_iter().next();
            ready(Readiness::Ok(Box::new(disk.expect("the first disk was made"))));
            running.serve(signals)
        }
        Err(error) => {
            ready(Readiness::Error(error));
            false
        }
    }
}

struct Running {
    state: State,
    pool: String,
    server: Arc<Server>,
    runtime: Runtime,
    api: Api,
}

/// The control API as it is served.
struct Api {
    task: JoinHandle<()>,
    end: Arc<Notify>,
}

fn start(config: &mut StartConfig) -> Result<Running, ApiError> {
    let state = State::at(config.state.clone()).map_err(state_error)?;
    let process = Process::current().map_err(state_error)?;
    let version = env!("CARGO_PKG_VERSION").to_string();
    let recovers = !config.recover.is_empty();
    if config.pool.kind == PoolType::Ram && config.pool.recovery.is_some() && !recovers {
        config.pool.identifier = identifier().map_err(|error| state_error(StateError::random(error)))?;
    }
    let record = PoolRecord { process, version, pool: config.pool.clone() };
    config.pool = match recovers {
        true => state.take_pool(record).map_err(state_error)?.pool,
        false => state.create_pool(record).map_err(state_error)?.pool,
    };
    let pool = config.pool.name.clone();
    let started = start_in(config, &state, process);
    // What a dead server left can be recovered again.
    if started.is_err() && !recovers {
        // What failed is reported; a directory that cannot be removed is replaced by the next server.
        drop(state.remove_pool(&pool));
    }
    let (server, runtime, api) = started?;
    Ok(Running { state, pool, server, runtime, api })
}

/// Starts what needs the directory of the pool.
fn start_in(
    config: &StartConfig,
    state: &State,
    process: Process,
) -> Result<(Arc<Server>, Runtime, Api), ApiError> {
    let failed = |what: &str, error: io::Error| ApiError::new(500, "server", format!("{what}: {error}"));
    let name = &config.pool.name;
    logging::start(&state.log(name), &format!("ublk-{name}"), config.foreground)
        .map_err(|error| failed("the log cannot be opened", error))?;
    logging::abort_on_panic();
    no_core_dump();
    tracing::info!("pool {name}: version {}, {}", env!("CARGO_PKG_VERSION"), written(&config.pool));
    let runtime =
        runtime().map_err(|error| failed("the threads of the control API cannot be made", error))?;
    let server = Server::new(config, state.clone(), process, runtime.handle().clone())?;
    let disk = match config.recover.is_empty() {
        true => server.add(config.disk.clone(), config.force).inspect_err(|_| leave(&server, &runtime))?,
        false => server.revive(&config.recover)?,
    };
    let api = serve_api(state, name, &server, &runtime).map_err(|error| {
        server.close();
        failed("the control API cannot be served", error)
    })?;
    tracing::info!("disk {}: {}", disk.name, written(&disk.limits));
    Ok((server, runtime, api))
}

/// A configuration as the log shows it.
fn written(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a configuration has a JSON form")
}

/// The memory of the server is the disk: writing it to a core file would keep the disk's requests waiting, long.
fn no_core_dump() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!("a crash may write the whole memory to a core file: {error}");
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        // A copy job waits on one for its helper process: more than as many jobs as may run, for the requests beside them.
        .max_blocking_threads(128)
        .thread_name("ublk-control")
        .enable_all()
        .build()
}

/// Leaves what outlives this server as a server does that ends, since the first disk of it was refused.
fn leave(server: &Server, runtime: &Runtime) {
    if runtime.block_on(server.flush(FLUSH)) {
        server.engine.shutdown();
        if let Err(error) = server.close_store() {
            tracing::error!("{error}");
        }
    }
}

fn serve_api(state: &State, pool: &str, server: &Arc<Server>, runtime: &Runtime) -> io::Result<Api> {
    let path = state.socket(pool);
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(&path)?
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let end = Arc::new(Notify::new());
    let task = runtime.spawn(http::serve(listener, Arc::clone(server), Arc::clone(&end)));
    Ok(Api { task, end })
}

impl Running {
    fn serve(self, signals: &Signals) -> bool {
        match signals.wait(Some(self.server.stop_fd()), None) {
            Ok(true) => tracing::info!("a signal ends the server"),
            Ok(false) => {}
            Err(error) => tracing::error!("no signal can be read: {error}"),
        }
        // Signals stay blocked: a second one changes nothing.
        let clean = self.server.close() & self.runtime.block_on(self.server.flush(FLUSH));
        self.api.end.notify_one();
        let answered = self.runtime.block_on(async { tokio::time::timeout(API_END, self.api.task).await });
        if answered.is_err() {
            tracing::warn!("a request of the control API was cut off");
        }
        self.runtime.shutdown_timeout(API_END);
        let (over, ended) = std::sync::mpsc::channel();
        let server = Arc::clone(&self.server);
        std::thread::spawn(move || {
            server.engine.shutdown();
            let closed = if clean { server.close_store() } else { Ok(()) };
            // The receiver may have given up.
            let _ = over.send(closed);
        });
        let clean = match ended.recv_timeout(ENGINE_END) {
            Ok(Ok(())) => clean,
            Ok(Err(error)) => {
                tracing::error!("{error}");
                false
            }
            Err(_) => {
                tracing::error!("the workers did not end within {} s", ENGINE_END.as_secs());
                clean
            }
        };
        tracing::info!("the server ends");
        // With a disk that the driver did not delete, the log and the record are what tells its owner.
        if clean && let Err(error) = self.state.remove_pool(&self.pool) {
            tracing::error!("{error}");
            return false;
        }
        clean
    }
}
