//! A host over TCP that waits: one thread, bounded waits.

use super::queue::{Done, HostQueue, QueueError, QueueOptions, Transfer};
use crate::nvme::wire::command::{AdminOpcode, Sqe};
use crate::nvme::wire::fabrics::{CNTLID_DYNAMIC, ConnectData, ConnectFields, Property, PropertyFields, cc};
use crate::nvme::wire::feature::Feature;
use crate::nvme::wire::identify::{Cns, CommandSet, IDENTIFY_LEN};
use crate::nvme::wire::status::Status;
use crate::nvme::wire::{text, to_vec, zeroed};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zerocopy::little_endian::{U16, U32};

/// The longest wait for the next byte.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why something went wrong.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// TCP.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The protocol.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The controller has closed the connection.
    #[error("the controller closed the connection")]
    Closed,
    /// A command that must not fail has failed.
    #[error("{0}: {1}")]
    Refused(&'static str, Status),
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    queue: HostQueue,
}

impl Link {
    /// Connects, up to ICResp.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn new(address: SocketAddr, options: QueueOptions) -> Result<Self, LinkError> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut link = Self { stream, queue: HostQueue::new(options) };
        while !link.queue.is_ready() {
            link.exchange()?;
        }
        Ok(link)
    }

    /// The queue.
    pub fn queue(&mut self) -> &mut HostQueue {
        &mut self.queue
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends all that waits.
    ///
    /// # Errors
    /// TCP.
    pub fn send(&mut self) -> Result<(), LinkError> {
        while self.queue.output_len() > 0 {
            let len = self.stream.write_vectored(&self.queue.output())?;
            if len == 0 {
                return Err(LinkError::Closed);
            }
            self.queue.sent(len);
        }
        Ok(())
    }

    /// Sends all that waits, and reads once.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn exchange(&mut self) -> Result<(), LinkError> {
        self.send()?;
        let len = self.stream.read(self.queue.space())?;
        if len == 0 {
            return Err(LinkError::Closed);
        }
        self.queue.filled(len)?;
        Ok(())
    }

    /// Sends a command.
    pub fn submit(&mut self, sqe: Sqe, transfer: Transfer) -> u16 {
        self.queue.submit(sqe, transfer)
    }

    /// The next command that ends.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn wait(&mut self) -> Result<Done, LinkError> {
        loop {
            match self.queue.done() {
                Some(done) => return Ok(done),
                None => self.exchange()?,
            }
        }
    }

    /// Does one command. No other is under way.
    ///
    /// # Errors
    /// See [`LinkError`]; a command that fails is none.
    pub fn run(&mut self, sqe: Sqe, transfer: Transfer) -> Result<Done, LinkError> {
        self.submit(sqe, transfer);
        self.wait()
    }
}

/// Who connects to what.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The subsystem.
    pub subnqn: String,
    /// The host.
    pub hostnqn: String,
    /// Its identifier.
    pub hostid: [u8; 16],
    /// Keep alive timeout in milliseconds; 0 for none.
    pub kato: u32,
    /// Entries of an I/O queue.
    pub entries: u16,
    /// No flow control of submission queues.
    pub no_flow_control: bool,
    /// How it speaks.
    pub queue: QueueOptions,
}

impl HostOptions {
    /// A host of the tests for a subsystem.
    pub fn new(subnqn: &str) -> Self {
        Self {
            subnqn: subnqn.to_string(),
            hostnqn: "nqn.2014-08.org.nvmexpress:uuid:6f1c1c2e-0000-4000-8000-000000000001".to_string(),
            hostid: [7; 16],
            kato: 0,
            entries: 128,
            no_flow_control: false,
            queue: QueueOptions::default(),
        }
    }

    /// Connect for a queue.
    pub fn connect(&self, qid: u16, cntlid: u16) -> (Sqe, Transfer) {
        let entries = if qid == 0 { 32 } else { self.entries };
        let fields = ConnectFields {
            recfmt: 0,
            qid,
            sqsize: entries - 1,
            no_flow_control: self.no_flow_control,
            kato: if qid == 0 { self.kato } else { 0 },
        };
        let mut data: ConnectData = zeroed();
        data.hostid = self.hostid;
        data.cntlid = U16::new(cntlid);
        data.subnqn = text(&self.subnqn, 0);
        data.hostnqn = text(&self.hostnqn, 0);
        (fields.sqe(), Transfer::Out(to_vec(&data)))
    }
}

/// A host with its admin queue, its controller enabled.
#[derive(Debug)]
pub struct Host {
    /// The admin queue.
    pub admin: Link,
    /// Its controller.
    pub cntlid: u16,
    address: SocketAddr,
    options: HostOptions,
}

impl Host {
    /// Connects the admin queue, enables the controller and asks for as many I/O queues as there may be.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn connect(address: SocketAddr, options: HostOptions) -> Result<Self, LinkError> {
        let mut admin = Link::new(address, options.queue)?;
        let (sqe, data) = options.connect(0, CNTLID_DYNAMIC);
        let done = must(admin.run(sqe, data)?, "Connect")?;
        let cntlid = (done.cqe.dw0() & 0xffff) as u16;
        let mut host = Self { admin, cntlid, address, options };
        let enable = cc::EN | cc::CSS_ALL << cc::CSS_SHIFT | cc::ENTRY_SIZES;
        host.admin_command(PropertyFields::set(Property::Cc, enable), Transfer::None)?;
        Ok(host)
    }

    /// Does an admin command that must succeed.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn admin_command(&mut self, sqe: Sqe, transfer: Transfer) -> Result<Done, LinkError> {
        must(self.admin.run(sqe, transfer)?, "admin command")
    }

    /// Connects an I/O queue.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn io_queue(&self, qid: u16) -> Result<Link, LinkError> {
        let mut link = Link::new(self.address, self.options.queue)?;
        let (sqe, data) = self.options.connect(qid, self.cntlid);
        must(link.run(sqe, data)?, "Connect for an I/O queue")?;
        Ok(link)
    }

    /// Identify.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn identify(&mut self, cns: Cns, nsid: u32) -> Result<Vec<u8>, LinkError> {
        self.identify_of(cns, nsid, CommandSet::Nvm)
    }

    /// Identify, of a command set.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn identify_of(&mut self, cns: Cns, nsid: u32, set: CommandSet) -> Result<Vec<u8>, LinkError> {
        let mut sqe = Sqe::new(AdminOpcode::Identify.code(), nsid);
        sqe.cdw10 = U32::new(cns.code().into());
        sqe.cdw11 = U32::new(u32::from(set.code()) << 24);
        Ok(self.admin_command(sqe, Transfer::In(IDENTIFY_LEN as u32))?.data)
    }

    /// Set Features for a feature without data.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn set_feature(&mut self, feature: Feature, value: u32) -> Result<u32, LinkError> {
        let mut sqe = Sqe::new(AdminOpcode::SetFeatures.code(), 0);
        sqe.cdw10 = U32::new(feature.code().into());
        sqe.cdw11 = U32::new(value);
        Ok(self.admin_command(sqe, Transfer::None)?.cqe.dw0())
    }
}

/// A command that must succeed.
fn must(done: Done, what: &'static str) -> Result<Done, LinkError> {
    if done.status().is_ok() { Ok(done) } else { Err(LinkError::Refused(what, done.status())) }
}
