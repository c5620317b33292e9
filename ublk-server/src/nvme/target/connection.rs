//! One connection: PDUs in, work out, and back.

use super::io::{self, Call, End, Step};
use super::pointer::{Moves, pointer};
use super::slots::{Phase, Slot, Slots};
use super::subsystem::View;
use super::{IN_CAPSULE_MAX, Queue, Reply, Tag, Transfer, admin};
use crate::engine::CallResult;
use crate::nvme::stream::{Input, Output};
use crate::nvme::wire::command::{AdminOpcode, Cqe, FabricsType, Sqe};
use crate::nvme::wire::pdu::{
    self, C2hData, C2hTermReq, CapsuleResp, Decoded, Digests, FLAG_LAST, FLAG_SUCCESS, FatalError, H2cData,
    IcReq, IcResp, Pdu, PduError, R2t, Receiver, Rules,
};
use crate::nvme::wire::status::Status;
use crate::nvme::wire::zeroed;
use std::collections::VecDeque;
use std::io::IoSlice;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

/// What a connection may use.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The most data of an H2CData PDU, a multiple of 4 from 4096 on (MAXH2CDATA).
    pub h2c_data_max: u32,
    /// The most data of commands under way, in bytes; one command may always have its own.
    pub memory_max: usize,
    /// Digests that a host may ask for.
    pub digests: Digests,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { h2c_data_max: 128 << 10, memory_max: 16 << 20, digests: Digests { header: true, data: true } }
    }
}

/// What a connection has others do.
#[derive(Debug)]
pub enum Work {
    /// For the target; the answer goes to [`Connection::replied`].
    Admin {
        /// The command.
        tag: Tag,
        /// The command.
        sqe: Sqe,
        /// What the host sent with it.
        data: Vec<u8>,
    },
    /// For the pool; the answer goes to [`Connection::answered`].
    Io {
        /// The command.
        tag: Tag,
        /// The request.
        call: Call,
    },
    /// A command has failed: for the error log.
    Failed {
        /// The command.
        sqe: Sqe,
        /// How.
        status: Status,
    },
}

/// Bytes on the wire, without those of TCP and below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// From the host.
    pub received: u64,
    /// To the host.
    pub sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// ICReq is awaited.
    New,
    /// Connect is awaited.
    Initialized,
    /// It is a queue.
    Connected,
    /// Nothing more is read.
    Ended,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    limits: ConnectionLimits,
    state: State,
    queue: Option<Queue>,
    digests: Digests,
    /// Alignment of the data that the host takes, in bytes.
    align: usize,
    sqhd: u16,
    input: Input,
    output: Output,
    slots: Slots,
    /// Commands that wait until there is memory for their data, first come first served.
    waiting: VecDeque<Tag>,
    /// Bytes of data that live commands hold.
    held: usize,
    work: VecDeque<Work>,
    wire: Wire,
    error: Option<PduError>,
}

impl Connection {
    /// A connection on which nothing was said.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            state: State::New,
            queue: None,
            digests: Digests::default(),
            align: 4,
            sqhd: 0,
            input: Input::default(),
            output: Output::default(),
            slots: Slots::default(),
            waiting: VecDeque::new(),
            held: 0,
            work: VecDeque::new(),
            wire: Wire::default(),
            error: None,
        }
    }

    /// The queue it is, once it is one.
    pub fn queue(&self) -> Option<Queue> {
        self.queue
    }

    /// Bytes moved.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Nothing more is read from it; what is left of the output may still be sent.
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// What the host did to make it end.
    pub fn error(&self) -> Option<PduError> {
        self.error
    }

    /// Ends it.
    pub fn end(&mut self) {
        self.state = State::Ended;
    }

    /// More may be read: the host takes what it is sent.
    pub fn wants_input(&self) -> bool {
        self.state != State::Ended && self.output.len() <= self.limits.memory_max
    }

    /// Live commands.
    pub fn live(&self) -> usize {
        self.slots.len()
    }

    /// Where the next bytes go.
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// So many bytes have come into the space.
    pub fn filled(&mut self, len: usize, view: &View) {
        self.input.filled(len);
        self.wire.received += len as u64;
        let mut input = std::mem::take(&mut self.input);
        while self.state != State::Ended {
            // Whoever is no queue yet has a capsule to send.
            let data_max = match self.queue {
                Some(_) => self.limits.h2c_data_max.max(IN_CAPSULE_MAX),
                None => IN_CAPSULE_MAX,
            };
            let rules =
                Rules { receiver: Receiver::Controller, digests: self.digests, data_max: data_max as usize };
            match pdu::decode(input.bytes(), &rules) {
                Ok(Decoded::Need(need)) => {
                    input.need(need);
                    break;
                }
                Ok(Decoded::Whole { pdu, len, intact }) => {
                    let handled = self.pdu(&pdu, intact, view);
                    if let Err(error) = handled {
                        self.fatal(error, input.bytes());
                    }
                    input.consume(len);
                }
                Err(error) => self.fatal(error, input.bytes()),
            }
        }
        self.input = input;
    }

    /// The next piece of work.
    pub fn work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// What waits to be sent, in order.
    pub fn output(&self) -> impl std::ops::Deref<Target = [IoSlice<'_>]> {
        self.output.slices()
    }

    /// Bytes that wait to be sent.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// So many bytes were sent.
    pub fn sent(&mut self, len: usize, view: &View) {
        self.output.sent(len);
        self.wire.sent += len as u64;
        self.admit_waiting(view);
    }

    fn pdu(&mut self, pdu: &Pdu<'_>, intact: bool, view: &View) -> Result<(), PduError> {
        match (self.state, pdu) {
            (State::New, Pdu::IcReq(icreq)) => self.initialize(icreq),
            (State::Initialized | State::Connected, Pdu::CapsuleCmd(capsule, data)) => {
                self.command(&capsule.sqe, data, intact, view)
            }
            (State::Initialized | State::Connected, Pdu::H2cData(header, data)) => {
                self.host_data(header, data, intact, view)
            }
            (_, Pdu::H2cTermReq(_)) => {
                self.state = State::Ended;
                Ok(())
            }
            (State::New | State::Initialized | State::Connected | State::Ended, _) => Err(sequence()),
        }
    }

    fn initialize(&mut self, icreq: &IcReq) -> Result<(), PduError> {
        const PFV: u16 = 8;
        const HPDA: u16 = 10;
        let unsupported = |offset| PduError { error: FatalError::UnsupportedParameter, offset };
        if icreq.pfv.get() != 0 {
            return Err(unsupported(PFV));
        }
        // In dwords counted from 0, up to 128 bytes.
        if icreq.hpda > 31 {
            return Err(unsupported(HPDA));
        }
        self.align = (usize::from(icreq.hpda) + 1) * 4;
        let asked = Digests::from_bits(icreq.dgst);
        let digests = Digests {
            header: asked.header && self.limits.digests.header,
            data: asked.data && self.limits.digests.data,
        };
        let mut icresp: IcResp = zeroed();
        icresp.dgst = digests.bits();
        icresp.maxh2cdata = U32::new(self.limits.h2c_data_max);
        self.output.write(|out| pdu::put(out, Digests::default(), 0, icresp));
        self.digests = digests;
        self.state = State::Initialized;
        Ok(())
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8], intact: bool, view: &View) -> Result<(), PduError> {
        // Before Connect there is room for Connect.
        let most = self.queue.map_or(1, |queue| usize::from(queue.size));
        if data.len() > IN_CAPSULE_MAX as usize {
            return Err(PduError { error: FatalError::DataLimitExceeded, offset: 4 });
        }
        if self.slots.len() >= most {
            return Err(sequence());
        }
        if self.slots.find(sqe.cid.get()).is_some() {
            self.refuse(sqe, Status::COMMAND_ID_CONFLICT.dnr());
            return Ok(());
        }
        let transfer = match self.transfer(sqe, view).and_then(|transfer| pointer(sqe, transfer, data)) {
            Ok(transfer) => transfer,
            Err(status) => {
                self.refuse(sqe, status);
                return Ok(());
            }
        };
        let (phase, held) = match transfer {
            Moves::Nothing => (Phase::AtTarget, 0),
            Moves::InCapsule(_) if !intact => {
                self.refuse(sqe, Status::TRANSIENT_TRANSPORT);
                return Ok(());
            }
            Moves::InCapsule(data) => {
                let len = data.len();
                let phase = Phase::Receiving { data: data.to_vec(), len, spoilt: false };
                (phase, len)
            }
            Moves::ByPdus(len) => (Phase::Waiting, len),
        };
        let ready = !matches!(phase, Phase::Waiting);
        let tag = self.slots.insert(Slot { sqe: *sqe, phase, held, aborted: false });
        if ready {
            self.held += held;
            self.begin(tag, view);
        } else {
            self.waiting.push_back(tag);
            self.admit_waiting(view);
        }
        Ok(())
    }

    fn transfer(&self, sqe: &Sqe, view: &View) -> Result<Transfer, Status> {
        if sqe.flags != Sqe::FLAGS_SGL {
            return Err(Status::INVALID_FIELD.dnr());
        }
        match self.queue {
            None if sqe.opcode == AdminOpcode::Fabrics.code()
                && sqe.fctype() == FabricsType::Connect.code() =>
            {
                admin::transfer(sqe)
            }
            None => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            Some(queue) if queue.is_admin() => admin::transfer(sqe),
            Some(_) if sqe.opcode == AdminOpcode::Fabrics.code() => Err(Status::INVALID_FIELD.dnr()),
            Some(_) => io::transfer(sqe, view),
        }
    }

    /// Lets commands move their data as far as memory goes; one always.
    fn admit_waiting(&mut self, view: &View) {
        while let Some(&tag) = self.waiting.front() {
            let Some(slot) = self.slots.get(tag) else {
                self.waiting.pop_front();
                continue;
            };
            let used = self.held + self.output.len();
            if used > 0 && used + slot.held > self.limits.memory_max {
                return;
            }
            self.waiting.pop_front();
            self.held += slot.held;
            let len = slot.held;
            if slot.sqe.is_to_controller() {
                slot.phase = Phase::Receiving { data: Vec::with_capacity(len), len, spoilt: false };
                let mut r2t: R2t = zeroed();
                r2t.cccid = slot.sqe.cid;
                r2t.ttag = U16::new(tag.0);
                r2t.r2tl = U32::new(u32::try_from(len).expect("a transfer has at most TRANSFER_MAX"));
                let digests = self.digests;
                self.output.write(|out| pdu::put(out, digests, 0, r2t));
            } else {
                self.begin(tag, view);
            }
        }
    }

    fn host_data(
        &mut self,
        header: &H2cData,
        part: &[u8],
        intact: bool,
        view: &View,
    ) -> Result<(), PduError> {
        const CCCID: u16 = 8;
        const TTAG: u16 = 10;
        const DATAO: u16 = 12;
        let invalid = |offset| PduError { error: FatalError::InvalidHeader, offset };
        let out_of_range = PduError { error: FatalError::DataOutOfRange, offset: DATAO };
        if part.len() > self.limits.h2c_data_max as usize {
            return Err(PduError { error: FatalError::DataLimitExceeded, offset: 16 });
        }
        let tag = Tag(header.ttag.get());
        let slot = self.slots.get(tag).ok_or(invalid(TTAG))?;
        if slot.sqe.cid != header.cccid {
            return Err(invalid(CCCID));
        }
        let Phase::Receiving { data, len, spoilt } = &mut slot.phase else { return Err(invalid(TTAG)) };
        let last = header.common.flags & FLAG_LAST != 0;
        // In order and without gaps; the last one, and no other, completes it.
        if header.datao.get() as usize != data.len()
            || data.len() + part.len() > *len
            || part.is_empty()
            || last != (data.len() + part.len() == *len)
        {
            return Err(out_of_range);
        }
        data.extend_from_slice(part);
        *spoilt |= !intact;
        if last {
            self.begin(tag, view);
        }
        Ok(())
    }

    /// The data of a command, if any, is there.
    fn begin(&mut self, tag: Tag, view: &View) {
        let Some(slot) = self.slots.get(tag) else { return };
        if slot.aborted {
            self.finish(tag, Status::ABORT_REQUESTED.into());
            return;
        }
        let data = match std::mem::replace(&mut slot.phase, Phase::AtTarget) {
            Phase::Receiving { spoilt: true, .. } => {
                self.finish(tag, Status::TRANSIENT_TRANSPORT.into());
                return;
            }
            Phase::Receiving { data, .. } => data,
            Phase::Waiting | Phase::AtTarget | Phase::AtPool(_) => Vec::new(),
        };
        let sqe = slot.sqe;
        if self.queue.is_none_or(Queue::is_admin) {
            self.work.push_back(Work::Admin { tag, sqe, data });
            return;
        }
        match io::begin(&sqe, data, view) {
            Ok(step) => self.step(tag, step),
            Err(status) => self.finish(tag, status.into()),
        }
    }

    fn step(&mut self, tag: Tag, step: Step) {
        match step {
            Step::Ask(job, call) => {
                if let Some(slot) = self.slots.get(tag) {
                    slot.phase = Phase::AtPool(job);
                    self.work.push_back(Work::Io { tag, call });
                }
            }
            Step::End(end) => self.finish(tag, end),
        }
    }

    /// The pool's answer.
    pub fn answered(&mut self, tag: Tag, answer: CallResult, view: &View) {
        let Some(slot) = self.slots.get(tag) else { return };
        let aborted = slot.aborted;
        match std::mem::replace(&mut slot.phase, Phase::AtTarget) {
            Phase::AtPool(job) => self.step(tag, io::answered(job, answer, aborted)),
            other @ (Phase::Waiting | Phase::Receiving { .. } | Phase::AtTarget) => {
                panic!("the pool answered a command that it did not have: {other:?}")
            }
        }
        self.admit_waiting(view);
    }

    /// The target's answer.
    pub fn replied(&mut self, tag: Tag, reply: Reply, view: &View) {
        match reply {
            Reply::Done { status, result, data } => {
                let data = Some(data).filter(|data| !data.is_empty());
                self.finish(tag, End { status, result, data });
            }
            Reply::Connected(queue) => {
                self.queue = Some(queue);
                self.state = State::Connected;
                let result = queue.controller.into();
                self.finish(tag, End { status: Status::SUCCESS, result, data: None });
            }
            Reply::Parked => {}
        }
        self.admit_waiting(view);
    }

    /// The host wants a command to end: its tag, if the pool has it and may end it early.
    pub fn abort(&mut self, cid: u16) -> Option<Tag> {
        let tag = self.slots.find(cid)?;
        let slot = self.slots.get(tag)?;
        slot.aborted = true;
        matches!(slot.phase, Phase::AtPool(_)).then_some(tag)
    }

    /// The target's tag of a live command with this number.
    pub fn tag_of(&self, cid: u16) -> Option<Tag> {
        self.slots.find(cid)
    }

    fn finish(&mut self, tag: Tag, end: End) {
        let Some(slot) = self.slots.remove(tag) else { return };
        self.held -= slot.held;
        self.respond(&slot.sqe, end);
    }

    /// Answers a command that never became live.
    fn refuse(&mut self, sqe: &Sqe, status: Status) {
        self.respond(sqe, status.into());
    }

    fn respond(&mut self, sqe: &Sqe, end: End) {
        let End { status, result, data } = end;
        if !status.is_ok() && self.queue.is_some() {
            self.work.push_back(Work::Failed { sqe: *sqe, status });
        }
        let flow_control = self.queue.is_none_or(|queue| queue.flow_control);
        let sqhd = match self.queue {
            Some(queue) if flow_control => {
                self.sqhd = (self.sqhd + 1) % queue.size;
                self.sqhd
            }
            Some(_) => 0xffff,
            None => 0,
        };
        // The last PDU of the data may say what the response would.
        let implied = status.is_ok() && result == 0 && !flow_control;
        if let Some(data) = data.filter(|_| status.is_ok()) {
            self.send_data(sqe, data, implied);
            if implied {
                return;
            }
        }
        let mut cqe = Cqe::new(sqe.cid.get(), status, result);
        cqe.sqhd = U16::new(sqhd);
        let digests = self.digests;
        let response = CapsuleResp { common: zeroed(), cqe };
        self.output.write(|out| pdu::put(out, digests, 0, response));
    }

    fn send_data(&mut self, sqe: &Sqe, data: Vec<u8>, success: bool) {
        let mut header: C2hData = zeroed();
        header.cccid = sqe.cid;
        header.datal = U32::new(u32::try_from(data.len()).expect("a transfer has at most TRANSFER_MAX"));
        let flags = FLAG_LAST | if success { FLAG_SUCCESS } else { 0 };
        let (digests, align) = (self.digests, self.align);
        if Output::is_long(data.len()) {
            let digest = digests.data.then(|| crc32c::crc32c(&data).to_le_bytes());
            self.output.write(|out| pdu::put_data_header(out, digests, align, flags, header, data.len()));
            self.output.own(data);
            if let Some(digest) = digest {
                self.output.write(|out| out.extend_from_slice(&digest));
            }
        } else {
            self.output.write(|out| pdu::put_data(out, digests, align, flags, header, &data));
        }
    }

    /// Ends the connection and tells the host why.
    fn fatal(&mut self, error: PduError, bytes: &[u8]) {
        self.state = State::Ended;
        self.error = Some(error);
        let mut term: C2hTermReq = zeroed();
        term.fes = U16::new(error.error.code());
        term.fei = [U16::new(error.offset), U16::new(0)];
        // As much of the header to blame as there is.
        let hlen = pdu::Common::ref_from_prefix(bytes).map_or(0, |(common, _)| usize::from(common.hlen));
        let blamed = &bytes[..hlen.min(bytes.len()).min(128)];
        self.output.write(|out| {
            let start = out.len();
            pdu::put(out, Digests::default(), 0, term);
            let plen = u32::try_from(out.len() - start + blamed.len()).expect("at most 152");
            out[start + 4..start + 8].copy_from_slice(U32::new(plen).as_bytes());
            out.extend_from_slice(blamed);
        });
    }
}

fn sequence() -> PduError {
    PduError { error: FatalError::PduSequence, offset: 0 }
}
