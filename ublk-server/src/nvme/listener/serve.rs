//! One connection: bytes between its socket, its state, the target and the pool.

use super::{Message, Shared};
use crate::engine::{CallAnswers, CallQueue, CallResult};
use crate::nvme::target::{Call, Connection, ConnectionId, Cx, Tag, View, Work};
use emulation::{RequestId, VolumeId};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

/// How long a host may take to become a queue: 10 s, in ticks.
const CONNECT_MAX: u32 = 40;
/// How long a host may take nothing of what it is sent: 30 s, in ticks.
const STALL_MAX: u32 = 120;
const _: () = assert!(super::TICK.as_millis() == 250);
/// How long a connection that ends may take to say so.
const FAREWELL_MAX: Duration = Duration::from_millis(500);
/// Rounds without a pause for other connections of the same thread.
const ROUNDS_MAX: u32 = 64;
/// Answers taken at a time.
const ANSWERS_MAX: usize = 256;

/// Serves a connection to its end.
pub(super) async fn run(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    id: ConnectionId,
    messages: UnboundedReceiver<Message>,
    discovery_only: bool,
) {
    let local = stream.local_addr();
    let (calls, answers) = shared.engine.call_queue();
    let mut session = Session {
        connection: Connection::new(shared.limits),
        view: View::default(),
        generation: 0,
        calls,
        at_pool: Vec::new(),
        local: local.unwrap_or(peer),
        discovery_only,
        id,
        silent: 0,
        counted: Default::default(),
        shared,
    };
    let why = match stream.set_nodelay(true) {
        Ok(()) => session.serve(&stream, messages, answers).await,
        Err(error) => End::Socket(error),
    };
    session.ended(&why);
    match why {
        End::Said(_) | End::Protocol => session.farewell(stream).await,
        End::Closed | End::Socket(_) => {}
    }
    session.count();
    session.shared.connections().remove(&id);
    session.log(peer, &why_text(&why, &session.connection));
}

/// Why a connection ends.
enum End {
    /// The host closed it.
    Closed,
    /// The socket failed.
    Socket(io::Error),
    /// The host broke the protocol, or asked for the end.
    Protocol,
    /// We end it.
    Said(&'static str),
}

fn why_text(why: &End, connection: &Connection) -> String {
    match why {
        End::Closed => "closed by the host".to_string(),
        End::Socket(error) => error.to_string(),
        End::Protocol => connection
            .error()
            .map_or("ended by the host".to_string(), |error| format!("the host broke the protocol: {error}")),
        End::Said(why) => (*why).to_string(),
    }
}

struct Session {
    shared: Arc<Shared>,
    connection: Connection,
    view: View,
    generation: u64,
    calls: CallQueue,
    /// Requests at the pool, by the tags of their commands.
    at_pool: Vec<Option<RequestId>>,
    local: SocketAddr,
    discovery_only: bool,
    id: ConnectionId,
    /// For so many ticks the host has taken nothing of what waits for it; before Connect, it is here.
    silent: u32,
    /// What of the connection's bytes is in the totals.
    counted: crate::nvme::target::Wire,
}

impl Session {
    async fn serve(
        &mut self,
        stream: &TcpStream,
        mut messages: UnboundedReceiver<Message>,
        mut answers: CallAnswers,
    ) -> End {
        let mut batch = Vec::with_capacity(ANSWERS_MAX);
        let mut rounds = 0;
        loop {
            let moved = match self.round(stream, &mut answers, &mut messages) {
                Ok(moved) => moved,
                Err(end) => return end,
            };
            if moved && rounds < ROUNDS_MAX {
                rounds += 1;
                continue;
            }
            if moved {
                tokio::task::yield_now().await;
                rounds = 0;
                continue;
            }
            rounds = 0;
            tokio::select! {
                ready = stream.readable(), if self.connection.wants_input() => {
                    if let Err(error) = ready { return End::Socket(error); }
                }
                ready = stream.writable(), if self.connection.output_len() > 0 => {
                    if let Err(error) = ready { return End::Socket(error); }
                }
                count = answers.recv_many(&mut batch, ANSWERS_MAX) => {
                    debug_assert!(count > 0, "this connection holds the other end");
                    batch.drain(..).for_each(|(number, answer)| self.answered(number, answer));
                }
                message = messages.recv() => match message {
                    Some(message) => if let Some(why) = self.message(message) { return End::Said(why) },
                    None => return End::Said("the door is closed"),
                },
            }
        }
    }

    /// Moves what can be moved without waiting. True when something was.
    fn round(
        &mut self,
        stream: &TcpStream,
        answers: &mut CallAnswers,
        messages: &mut UnboundedReceiver<Message>,
    ) -> Result<bool, End> {
        self.refresh();
        let mut moved = false;
        while let Ok(message) = messages.try_recv() {
            if let Some(why) = self.message(message) {
                return Err(End::Said(why));
            }
            moved = true;
        }
        while let Ok((number, answer)) = answers.try_recv() {
            self.answered(number, answer);
            moved = true;
        }
        self.work();
        moved |= self.write(stream)?;
        if self.connection.is_ended() {
            return Err(End::Protocol);
        }
        moved |= self.read(stream)?;
        self.work();
        Ok(moved)
    }

    fn read(&mut self, stream: &TcpStream) -> Result<bool, End> {
        if !self.connection.wants_input() {
            return Ok(false);
        }
        match stream.try_read(self.connection.space()) {
            Ok(0) => Err(End::Closed),
            Ok(len) => {
                self.connection.filled(len, &self.view);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(End::Socket(error)),
        }
    }

    fn write(&mut self, stream: &TcpStream) -> Result<bool, End> {
        let mut moved = false;
        while self.connection.output_len() > 0 {
            let result = stream.try_write_vectored(&self.connection.output());
            match result {
                Ok(len) => {
                    self.connection.sent(len, &self.view);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(End::Socket(error)),
            }
        }
        Ok(moved)
    }

    /// Knows what I/O has to know, as it is now.
    fn refresh(&mut self) {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.view = self.shared.target().view(self.id);
        }
    }

    /// Carries the connection's work to the target and the pool.
    fn work(&mut self) {
        while let Some(work) = self.connection.work() {
            match work {
                Work::Io { tag, call } => {
                    let Call { volume, op, flags, data } = call;
                    let request = self.calls.push(tag.0.into(), volume, op, flags, data);
                    let index = usize::from(tag.0);
                    if self.at_pool.len() <= index {
                        self.at_pool.resize(index + 1, None);
                    }
                    self.at_pool[index] = Some(request);
                }
                Work::Admin { tag, sqe, data } => {
                    let volumes: Vec<VolumeId> =
                        self.view.namespaces.iter().map(|namespace| namespace.volume).collect();
                    let shared = Arc::clone(&self.shared);
                    let health = || shared.health(&volumes);
                    let reply = self.shared.with_target(|target, effects| {
                        let mut cx = Cx {
                            now: self.shared.engine.now(),
                            local: self.local,
                            discovery_only: self.discovery_only,
                            health: &health,
                            effects,
                        };
                        target.execute(&mut cx, self.id, tag, &sqe, &data)
                    });
                    self.refresh();
                    self.connection.replied(tag, reply, &self.view);
                }
                Work::Failed { sqe, status } => {
                    if let Some(queue) = self.connection.queue() {
                        self.shared.target().failed(queue, &sqe, status);
                    }
                }
            }
        }
        self.calls.submit();
    }

    fn answered(&mut self, number: u64, answer: CallResult) {
        let tag = Tag(u16::try_from(number).expect("the number of a call is a tag"));
        self.at_pool[usize::from(tag.0)] = None;
        self.connection.answered(tag, answer, &self.view);
    }

    /// Why the connection has to end, if it has to.
    fn message(&mut self, message: Message) -> Option<&'static str> {
        match message {
            Message::Close(why) => return Some(why),
            Message::Complete(tag, reply) => self.connection.replied(tag, reply, &self.view),
            Message::Abort(cid) => match self.connection.abort(cid) {
                Some(tag) => {
                    // One that is not there yet ends when it comes back, if it has a next part.
                    if let Some(Some(request)) = self.at_pool.get(usize::from(tag.0)) {
                        self.shared.engine.abort(*request);
                    }
                }
                None => {
                    if let Some(tag) = self.connection.tag_of(cid) {
                        self.shared.with_target(|target, effects| target.abort(self.id, tag, effects));
                    }
                }
            },
            Message::Tick => {
                let takes =
                    self.connection.wire().sent > self.counted.sent || self.connection.output_len() == 0;
                self.count();
                let is_queue = self.connection.queue().is_some();
                self.silent = if is_queue && takes { 0 } else { self.silent + 1 };
                if !is_queue && self.silent > CONNECT_MAX {
                    return Some("the host did not connect in time");
                }
                if self.silent > STALL_MAX {
                    return Some("the host takes nothing of what it is sent");
                }
            }
        }
        None
    }

    /// Adds to the totals what is not in them.
    fn count(&mut self) {
        let wire = self.connection.wire();
        let totals = &self.shared.totals;
        totals.received.fetch_add(wire.received - self.counted.received, Ordering::Relaxed);
        totals.sent.fetch_add(wire.sent - self.counted.sent, Ordering::Relaxed);
        self.counted = wire;
    }

    /// Nobody waits for what is under way any more.
    fn ended(&mut self, why: &End) {
        self.connection.end();
        self.at_pool.iter().flatten().for_each(|request| self.shared.engine.abort(*request));
        let id = self.id;
        self.shared.with_target(|target, effects| target.disconnected(id, effects));
        if let End::Socket(error) = why {
            tracing::debug!("nvme: {error}");
        }
    }

    /// Sends what the host should still hear, and lets it hear it: closing a socket with unread bytes would not.
    async fn farewell(&mut self, mut stream: TcpStream) {
        let rest: Vec<u8> = self.connection.output().iter().flat_map(|piece| piece.iter().copied()).collect();
        let said = async {
            stream.write_all(&rest).await?;
            stream.shutdown().await?;
            let mut unread = [0; 4096];
            while stream.read(&mut unread).await? > 0 {}
            io::Result::Ok(())
        };
        // A host that does not listen has missed it.
        drop(tokio::time::timeout(FAREWELL_MAX, said).await);
    }

    fn log(&self, peer: SocketAddr, why: &str) {
        match self.connection.queue() {
            Some(queue) if queue.is_admin() => {
                tracing::info!("nvme: controller {} of {peer} has ended: {why}", queue.controller);
            }
            Some(queue) => tracing::info!(
                "nvme: queue {} of controller {} of {peer} has ended: {why}",
                queue.qid,
                queue.controller
            ),
            None => tracing::info!("nvme: {peer} was no host: {why}"),
        }
    }
}
