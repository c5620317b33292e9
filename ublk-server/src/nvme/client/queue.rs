//! The host's side of one connection, without sockets.

use crate::nvme::stream::{Input, Output};
use crate::nvme::wire::command::{Cqe, Sgl, Sqe};
use crate::nvme::wire::pdu::{
    self, C2hData, CapsuleCmd, Decoded, Digests, FLAG_LAST, FLAG_SUCCESS, FatalError, H2cData, IcReq, Pdu,
    PduError, R2t, Receiver, Rules,
};
use crate::nvme::wire::status::Status;
use crate::nvme::wire::zeroed;
use std::collections::VecDeque;
use std::io::IoSlice;
use zerocopy::little_endian::{U16, U32};

/// The least MAXH2CDATA that a controller may say.
const MAXH2CDATA_MIN: u32 = 4096;

/// How a host speaks.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Digests to ask for.
    pub digests: Digests,
    /// Alignment of data that it takes, in dwords counted from 0.
    pub hpda: u8,
    /// Data up to this length goes into the capsule.
    pub in_capsule_max: usize,
    /// The most data of an H2CData PDU, if less than the controller takes.
    pub h2c_data_max: usize,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { digests: Digests::default(), hpda: 0, in_capsule_max: 8192, h2c_data_max: usize::MAX }
    }
}

/// The data of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// To the controller.
    Out(Vec<u8>),
    /// From the controller, so many bytes.
    In(u32),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The command.
    pub cid: u16,
    /// How.
    pub cqe: Cqe,
    /// What it returned.
    pub data: Vec<u8>,
}

impl Done {
    /// How it ended.
    pub fn status(&self) -> Status {
        self.cqe.status()
    }
}

/// Why a connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// What came is no PDU.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// The controller has ended it.
    #[error("ended by the controller: {0:?}")]
    Terminated(Option<FatalError>),
    /// A PDU that fits nothing that was sent.
    #[error("the controller broke the protocol: {0}")]
    Protocol(&'static str),
}

#[derive(Debug)]
struct Live {
    /// For the controller, until it has all.
    out: Vec<u8>,
    /// From the controller.
    data: Vec<u8>,
    /// So much of it has come.
    got: usize,
}

/// The host's side of a connection.
#[derive(Debug)]
pub struct HostQueue {
    options: QueueOptions,
    digests: Digests,
    ready: bool,
    h2c_data_max: usize,
    input: Input,
    output: Output,
    live: Vec<Option<Live>>,
    free: Vec<u16>,
    done: VecDeque<Done>,
    received: u64,
    sent: u64,
}

impl HostQueue {
    /// A connection whose first word is said: ICReq.
    pub fn new(options: QueueOptions) -> Self {
        let mut queue = Self {
            options,
            digests: Digests::default(),
            ready: false,
            h2c_data_max: 0,
            input: Input::default(),
            output: Output::default(),
            live: Vec::new(),
            free: Vec::new(),
            done: VecDeque::new(),
            received: 0,
            sent: 0,
        };
        let mut icreq: IcReq = zeroed();
        icreq.hpda = options.hpda;
        icreq.dgst = options.digests.bits();
        queue.output.write(|out| pdu::put(out, Digests::default(), 0, icreq));
        queue
    }

    /// ICResp has come.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The digests in use.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Commands under way.
    pub fn live(&self) -> usize {
        self.live.len() - self.free.len()
    }

    /// Bytes received and sent so far.
    pub fn wire(&self) -> (u64, u64) {
        (self.received, self.sent)
    }

    /// Sends a command; its number is filled in and returned. Only after ICResp.
    pub fn submit(&mut self, mut sqe: Sqe, transfer: Transfer) -> u16 {
        assert!(self.ready, "no command before ICResp");
        let cid = self.free.pop().unwrap_or_else(|| {
            self.live.push(None);
            u16::try_from(self.live.len() - 1).expect("at most 65,536 commands")
        });
        sqe.cid = U16::new(cid);
        let mut live = Live { out: Vec::new(), data: Vec::new(), got: 0 };
        let header = |sqe| CapsuleCmd { common: zeroed(), sqe };
        let digests = self.digests;
        match transfer {
            Transfer::None => self.output.write(|out| pdu::put(out, digests, 0, header(sqe))),
            Transfer::In(len) => {
                sqe.dptr = Sgl::transport(len);
                live.data = vec![0; len as usize];
                self.output.write(|out| pdu::put(out, digests, 0, header(sqe)));
            }
            Transfer::Out(data) if data.len() <= self.options.in_capsule_max && !data.is_empty() => {
                sqe.dptr = Sgl::in_capsule(data.len() as u32);
                self.output.write(|out| pdu::put_data(out, digests, 4, 0, header(sqe), &data));
            }
            Transfer::Out(data) => {
                sqe.dptr = Sgl::transport(data.len() as u32);
                live.out = data;
                self.output.write(|out| pdu::put(out, digests, 0, header(sqe)));
            }
        }
        self.live[usize::from(cid)] = Some(live);
        cid
    }

    /// Puts bytes on the wire as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.output.write(|out| out.extend_from_slice(bytes));
    }

    /// A command that has ended.
    pub fn done(&mut self) -> Option<Done> {
        self.done.pop_front()
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
    pub fn sent(&mut self, len: usize) {
        self.output.sent(len);
        self.sent += len as u64;
    }

    /// Where the next bytes go.
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// So many bytes have come into the space.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn filled(&mut self, len: usize) -> Result<(), QueueError> {
        self.input.filled(len);
        self.received += len as u64;
        let mut input = std::mem::take(&mut self.input);
        let result = self.read(&mut input);
        self.input = input;
        result
    }

    fn read(&mut self, input: &mut Input) -> Result<(), QueueError> {
        loop {
            let rules = Rules { receiver: Receiver::Host, digests: self.digests, data_max: 1 << 24 };
            match pdu::decode(input.bytes(), &rules)? {
                Decoded::Need(need) => {
                    input.need(need);
                    return Ok(());
                }
                Decoded::Whole { intact: false, .. } => {
                    return Err(QueueError::Protocol("a wrong data digest"));
                }
                Decoded::Whole { pdu, len, intact: true } => {
                    self.pdu(&pdu)?;
                    input.consume(len);
                }
            }
        }
    }

    fn pdu(&mut self, pdu: &Pdu<'_>) -> Result<(), QueueError> {
        match pdu {
            Pdu::IcResp(icresp) if !self.ready => {
                if icresp.maxh2cdata.get() < MAXH2CDATA_MIN {
                    return Err(QueueError::Protocol("MAXH2CDATA below 4096"));
                }
                self.ready = true;
                self.digests = Digests::from_bits(icresp.dgst);
                self.h2c_data_max = (icresp.maxh2cdata.get() as usize).min(self.options.h2c_data_max);
                Ok(())
            }
            Pdu::CapsuleResp(response) => self.complete(response.cqe),
            Pdu::C2hData(header, data) => self.data(header, data),
            Pdu::R2t(r2t) => self.ready_to_transfer(r2t),
            Pdu::C2hTermReq(term) => Err(QueueError::Terminated(FatalError::of(term.fes.get()))),
            Pdu::IcResp(_) | Pdu::IcReq(_) | Pdu::H2cTermReq(_) | Pdu::CapsuleCmd(..) | Pdu::H2cData(..) => {
                Err(QueueError::Protocol("a PDU out of place"))
            }
        }
    }

    fn complete(&mut self, cqe: Cqe) -> Result<(), QueueError> {
        let cid = cqe.cid.get();
        let live = self.live.get_mut(usize::from(cid)).and_then(Option::take);
        let live = live.ok_or(QueueError::Protocol("a response to no command"))?;
        if cqe.status().is_ok() && live.got < live.data.len() {
            return Err(QueueError::Protocol("success with less data than asked for"));
        }
        self.free.push(cid);
        self.done.push_back(Done { cid, cqe, data: live.data });
        Ok(())
    }

    fn data(&mut self, header: &C2hData, data: &[u8]) -> Result<(), QueueError> {
        let cid = header.cccid.get();
        let live = self.live.get_mut(usize::from(cid)).and_then(Option::as_mut);
        let live = live.ok_or(QueueError::Protocol("data of no command"))?;
        let offset = header.datao.get() as usize;
        let place = live.data.get_mut(offset..offset + data.len());
        place.ok_or(QueueError::Protocol("data beyond what was asked for"))?.copy_from_slice(data);
        live.got += data.len();
        let flags = header.common.flags;
        if flags & FLAG_SUCCESS != 0 {
            if flags & FLAG_LAST == 0 {
                return Err(QueueError::Protocol("success before the last data"));
            }
            self.complete(Cqe::new(cid, Status::SUCCESS, 0))?;
        }
        Ok(())
    }

    fn ready_to_transfer(&mut self, r2t: &R2t) -> Result<(), QueueError> {
        let live = self.live.get(usize::from(r2t.cccid.get())).and_then(Option::as_ref);
        let live = live.ok_or(QueueError::Protocol("R2T for no command"))?;
        let (start, len) = (r2t.r2to.get() as usize, r2t.r2tl.get() as usize);
        let asked = live.out.get(start..start + len).filter(|data| !data.is_empty());
        let asked = asked.ok_or(QueueError::Protocol("R2T beyond the data"))?;
        let (mut offset, digests, most) = (start, self.digests, self.h2c_data_max);
        let end = start + len;
        for part in asked.chunks(most) {
            let mut header: H2cData = zeroed();
            header.cccid = r2t.cccid;
            header.ttag = r2t.ttag;
            header.datao = U32::new(offset as u32);
            header.datal = U32::new(part.len() as u32);
            offset += part.len();
            let flags = if offset == end { FLAG_LAST } else { 0 };
            self.output.write(|out| pdu::put_data(out, digests, 4, flags, header, part));
        }
        Ok(())
    }
}
