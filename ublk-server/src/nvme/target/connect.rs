//! Connect: who becomes which queue.

use super::controller::{Controller, Kind};
use super::subsystem::{Cx, Target};
use super::{ConnectionId, QUEUE_ENTRIES_MAX, Queue, Reply};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::fabrics::{CNTLID_DYNAMIC, ConnectData, ConnectFields, DISCOVERY_NQN, NQN_MAX, blame};
use crate::nvme::wire::status::Status;
use crate::nvme::wire::{read, text_of};

/// The highest controller number that hosts take.
const CNTLID_MAX: u16 = 0xffef;

/// A refused Connect, and the field to blame.
fn invalid(offset: u16, in_data: bool) -> Reply {
    let status = Status::CONNECT_INVALID_PARAM.dnr();
    Reply::Done { status, result: blame(offset, in_data), data: Vec::new() }
}

impl Target {
    pub(super) fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<Reply, Reply> {
        let fields = ConnectFields::of(sqe);
        let data: ConnectData = read(data).ok_or(Reply::from(Status::DATA_SGL_LENGTH_INVALID.dnr()))?;
        if self.queues.contains_key(&connection) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr().into());
        }
        if fields.recfmt != 0 {
            return Err(Status::CONNECT_FORMAT.dnr().into());
        }
        if !(1..QUEUE_ENTRIES_MAX).contains(&fields.sqsize) {
            return Err(invalid(ConnectFields::SQSIZE, false));
        }
        let (kind, host_nqn) = self.names(&data, cx.discovery_only)?;
        let controller = match fields.qid {
            0 => self.admin_queue(cx, kind, host_nqn, &data, fields.kato)?,
            qid => self.io_queue(kind, host_nqn, &data, qid)?,
        };
        controller.connections.insert(fields.qid, connection);
        let size = fields.sqsize + 1;
        let queue =
            Queue { controller: controller.id, qid: fields.qid, size, flow_control: !fields.no_flow_control };
        self.queues.insert(connection, queue);
        self.changed();
        Ok(Reply::Connected(queue))
    }

    /// Which subsystem is meant, and by whom.
    fn names<'a>(&self, data: &'a ConnectData, discovery_only: bool) -> Result<(Kind, &'a str), Reply> {
        let kind = match text_of(&data.subnqn) {
            Some(name) if name == self.config.nqn && !discovery_only => Kind::Nvm,
            Some(DISCOVERY_NQN) => Kind::Discovery,
            Some(_) | None => return Err(invalid(ConnectData::SUBNQN, true)),
        };
        let host = text_of(&data.hostnqn).filter(|name| !name.is_empty() && name.len() <= NQN_MAX);
        let host = host.ok_or(invalid(ConnectData::HOSTNQN, true))?;
        // Finding the subsystem is free; its entry is shown to those who may use it.
        if kind == Kind::Nvm && !self.allows(host) {
            return Err(Status::CONNECT_INVALID_HOST.dnr().into());
        }
        Ok((kind, host))
    }

    pub(super) fn allows(&self, host: &str) -> bool {
        self.config.allow_hosts.is_empty() || self.config.allow_hosts.contains(host)
    }

    fn admin_queue(
        &mut self,
        cx: &mut Cx<'_>,
        kind: Kind,
        host_nqn: &str,
        data: &ConnectData,
        kato: u32,
    ) -> Result<&mut Controller, Reply> {
        if data.cntlid.get() != CNTLID_DYNAMIC {
            return Err(invalid(ConnectData::CNTLID, true));
        }
        if self.controllers.len() >= self.config.controllers_max {
            return Err(Status::CONNECT_CTRL_BUSY.into());
        }
        let id = self.next_cntlid();
        let mut controller =
            Controller::new(id, kind, host_nqn.to_string(), data.hostid, QUEUE_ENTRIES_MAX - 1);
        controller.features.kato = kato;
        controller.alive(cx.now);
        Ok(self.controllers.entry(id).or_insert(controller))
    }

    /// The next number that is free. A number is used again as late as possible: hosts may still know it.
    fn next_cntlid(&mut self) -> u16 {
        loop {
            self.last_cntlid = if self.last_cntlid >= CNTLID_MAX { 1 } else { self.last_cntlid + 1 };
            if !self.controllers.contains_key(&self.last_cntlid) {
                return self.last_cntlid;
            }
        }
    }

    fn io_queue(
        &mut self,
        kind: Kind,
        host_nqn: &str,
        data: &ConnectData,
        qid: u16,
    ) -> Result<&mut Controller, Reply> {
        let found = self.controllers.get_mut(&data.cntlid.get());
        let controller = found.ok_or(invalid(ConnectData::CNTLID, true))?;
        if controller.kind != kind || kind == Kind::Discovery {
            return Err(invalid(ConnectFields::QID, false));
        }
        if controller.host_nqn != host_nqn {
            return Err(invalid(ConnectData::HOSTNQN, true));
        }
        if controller.host_id != data.hostid {
            return Err(Status::HOST_ID_INCONSISTENT.dnr().into());
        }
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr().into());
        }
        if qid > controller.features.queues.unwrap_or(self.config.queues_max) {
            return Err(invalid(ConnectFields::QID, false));
        }
        if controller.connections.contains_key(&qid) {
            return Err(Status::CONNECT_CTRL_BUSY.dnr().into());
        }
        Ok(controller)
    }
}
