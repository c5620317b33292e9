//! A plan over a file, one operation of the ring after the other.

use super::inline::flip;
use super::port::Port;
use super::ring::FileOp;
use crate::store::{Buffer, FileStore};
use emulation::ledger::MoveReason;
use emulation::{BlkStatus, Bytes, IoResult, Plan, Step};
use rustix::io::Errno;

/// The most bytes that one operation moves.
const CHUNK: usize = 1 << 20;

/// How a plan goes on.
#[derive(Debug)]
pub(crate) enum Progress {
    /// By this operation.
    Op(FileOp),
    /// By a copy that the file system makes: from here, to there, so many bytes.
    Copy { from: u64, to: u64, len: usize },
    /// By the commit of the metadata, its last step.
    Commit,
    /// It does not.
    Finished(IoResult),
}

/// Buffers between operations.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Vec<Buffer>);

impl Buffers {
    /// The most that are kept, and the smallest that is made.
    const KEPT: usize = 256;
    const SMALLEST: usize = 64 << 10;

    fn get(&mut self, len: usize) -> Buffer {
        match self.0.iter().rposition(|buffer| buffer.len() >= len) {
            Some(index) => self.0.swap_remove(index),
            None => Buffer::zeroed(len.next_power_of_two().max(Self::SMALLEST)),
        }
    }

    fn put(&mut self, buffer: Buffer) {
        if self.0.len() < Self::KEPT {
            self.0.push(buffer);
        }
    }
}

/// Bytes on their way between buffer and file.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    write: bool,
    position: u64,
    len: usize,
    /// Of `len`, so many are through.
    done: usize,
}

impl Transfer {
    fn new(write: bool, position: u64, len: usize) -> Self {
        Self { write, position, len, done: 0 }
    }

    fn op(self, buffer: Buffer) -> Progress {
        let (skip, len, position) = (self.done, self.len - self.done, self.position + self.done as u64);
        Progress::Op(if self.write {
            FileOp::Write { buffer, skip, len, position }
        } else {
            FileOp::Read { buffer, skip, len, position }
        })
    }
}

/// What the operation under way is for.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Transfer(Transfer),
    Allocate { mode: i32 },
    Copy,
    Sync,
}

/// A plan under way.
#[derive(Debug)]
pub(crate) struct Job {
    plan: Plan,
    step: usize,
    /// Bytes of the step that are through.
    done: u64,
    doing: Option<Doing>,
    /// The pool has metadata to commit.
    commits: bool,
    /// Moves are left to the file system.
    by_file: bool,
    /// Bytes that it copied.
    copied: u64,
}

impl Job {
    pub(crate) fn new(plan: Plan, commits: bool, by_file: bool) -> Self {
        Self { plan, step: 0, done: 0, doing: None, commits, by_file, copied: 0 }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn into_plan(self) -> Plan {
        self.plan
    }

    /// The first operation.
    pub(crate) fn start(
        &mut self,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Progress {
        self.go_on(store, buffers, port).unwrap_or_else(|error| self.failed(error))
    }

    /// The operation ended with `result`; the next one.
    pub(crate) fn completed(
        &mut self,
        result: i32,
        buffer: Option<Buffer>,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Progress {
        let doing = self.doing.take().expect("an operation is under way");
        let next = match doing {
            Doing::Transfer(transfer) => {
                let buffer = buffer.expect("a transfer has a buffer");
                self.transferred(transfer, result, buffer, store, buffers, port)
            }
            Doing::Allocate { mode } => self.allocated(mode, result, store, buffers, port),
            Doing::Copy => self.copied(result, store, buffers, port),
            Doing::Sync => check(result).and_then(|_| self.step_done(store, buffers, port)),
        };
        next.unwrap_or_else(|error| self.failed(error))
    }

    fn failed(&self, error: Errno) -> Progress {
        self.finished(IoResult::failed(BlkStatus::from_errno(error.raw_os_error()), self.step))
    }

    fn finished(&self, io: IoResult) -> Progress {
        Progress::Finished(IoResult { cfr: Bytes(self.copied), ..io })
    }

    fn step_done(
        &mut self,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Result<Progress, Errno> {
        self.step += 1;
        self.done = 0;
        self.go_on(store, buffers, port)
    }

    fn transfer(&mut self, transfer: Transfer, buffer: Buffer) -> Progress {
        self.doing = Some(Doing::Transfer(transfer));
        transfer.op(buffer)
    }

    fn allocate(&mut self, mode: i32, position: u64, len: u64) -> Progress {
        self.doing = Some(Doing::Allocate { mode });
        Progress::Op(FileOp::Allocate { mode, position, len })
    }

    /// The next operation of this step, or of the first one after it that needs an operation.
    fn go_on(
        &mut self,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Result<Progress, Errno> {
        while let Some(step) = self.plan.steps.get(self.step) {
            match step {
                Step::Read { from, .. } => {
                    let (position, len) = (store.position(from.start), from.len.bytes().0 as usize);
                    return Ok(self.transfer(Transfer::new(false, position, len), buffers.get(len)));
                }
                Step::ReadFlipped { from: Some(from), len, .. } => {
                    let (position, len) = (store.position(*from), len.bytes().0 as usize);
                    return Ok(self.transfer(Transfer::new(false, position, len), buffers.get(len)));
                }
                Step::ReadFlipped { from: None, len, port: offset, bit } => {
                    let mut bytes = vec![0; len.bytes().0 as usize];
                    flip(&mut bytes, *bit);
                    port.put(*offset, &bytes)?;
                }
                Step::ReadZeroes { port: offset, len } => port.put_zeroes(*offset, len.bytes())?,
                Step::Write { port: offset, to } => {
                    let (position, len) = (store.position(to.start), to.len.bytes().0 as usize);
                    let mut buffer = buffers.get(len);
                    port.take(*offset, &mut buffer.bytes_mut()[..len])?;
                    return Ok(self.transfer(Transfer::new(true, position, len), buffer));
                }
                Step::Move { from, to, reason } => {
                    let len = chunk(from.len.bytes().0 - self.done);
                    if self.by_file && *reason != MoveReason::PartBlock && store.copies_by_file() {
                        let at = |sector| store.position(sector) + self.done;
                        let (from, to) = (at(from.start), at(*to));
                        self.doing = Some(Doing::Copy);
                        return Ok(Progress::Copy { from, to, len });
                    }
                    let position = store.position(from.start) + self.done;
                    return Ok(self.transfer(Transfer::new(false, position, len), buffers.get(len)));
                }
                Step::Zero { at, unmap } => {
                    let (position, left) =
                        (store.position(at.start) + self.done, at.len.bytes().0 - self.done);
                    if let Some(mode) = store.zero_mode(*unmap) {
                        return Ok(self.allocate(mode, position, left));
                    }
                    let len = chunk(left);
                    let mut buffer = buffers.get(len);
                    buffer.bytes_mut()[..len].fill(0);
                    return Ok(self.transfer(Transfer::new(true, position, len), buffer));
                }
                Step::Trim { at } => {
                    if let Some(mode) = store.trim_mode() {
                        let (position, len) = (store.position(at.start), at.len.bytes().0);
                        return Ok(self.allocate(mode, position, len));
                    }
                }
                Step::Sync => {
                    self.doing = Some(Doing::Sync);
                    return Ok(Progress::Op(FileOp::Sync));
                }
                // A raw image has no metadata of ours.
                Step::Commit(_) if !self.commits => {}
                Step::Commit(_) => return Ok(Progress::Commit),
            }
            self.step += 1;
            self.done = 0;
        }
        Ok(self.finished(IoResult::done(&self.plan)))
    }

    fn transferred(
        &mut self,
        mut transfer: Transfer,
        result: i32,
        mut buffer: Buffer,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Result<Progress, Errno> {
        transfer.done += match check(result) {
            // The file ended, or takes no more.
            Ok(0) => return Err(Errno::IO),
            Ok(n) => n as usize,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        if transfer.done < transfer.len {
            return Ok(self.transfer(transfer, buffer));
        }
        let total = match &self.plan.steps[self.step] {
            Step::Read { port: offset, .. } => {
                port.put(*offset, &buffer.bytes()[..transfer.len])?;
                transfer.len as u64
            }
            Step::ReadFlipped { port: offset, bit, .. } => {
                flip(buffer.bytes_mut(), *bit);
                port.put(*offset, &buffer.bytes()[..transfer.len])?;
                transfer.len as u64
            }
            Step::Write { .. } => transfer.len as u64,
            Step::Move { to, .. } if !transfer.write => {
                let position = store.position(*to) + self.done;
                return Ok(self.transfer(Transfer::new(true, position, transfer.len), buffer));
            }
            Step::Move { from, .. } => from.len.bytes().0,
            Step::Zero { at, .. } => at.len.bytes().0,
            Step::ReadZeroes { .. } | Step::Trim { .. } | Step::Sync | Step::Commit(_) => {
                panic!("a step without a transfer")
            }
        };
        buffers.put(buffer);
        self.done += transfer.len as u64;
        if self.done < total {
            self.go_on(store, buffers, port)
        } else {
            self.step_done(store, buffers, port)
        }
    }

    /// The file system copied so much, or does not copy. What it does not, reads and writes do.
    fn copied(
        &mut self,
        result: i32,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Result<Progress, Errno> {
        let Step::Move { from, .. } = &self.plan.steps[self.step] else { panic!("a copy is of a move") };
        let total = from.len.bytes().0;
        match check(result) {
            // Beyond the end of the file, which reads tell.
            Ok(0) | Err(Errno::INVAL) => self.by_file = false,
            Ok(bytes) => {
                self.done += u64::from(bytes);
                self.copied += u64::from(bytes);
            }
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV) => store.no_copies_by_file(),
            Err(error) => return Err(error),
        }
        if self.done < total {
            self.go_on(store, buffers, port)
        } else {
            self.step_done(store, buffers, port)
        }
    }

    fn allocated(
        &mut self,
        mode: i32,
        result: i32,
        store: &FileStore,
        buffers: &mut Buffers,
        port: &mut Port<'_>,
    ) -> Result<Progress, Errno> {
        match check(result) {
            Ok(_) => self.step_done(store, buffers, port),
            Err(Errno::OPNOTSUPP) => {
                store.refused(mode);
                self.go_on(store, buffers, port)
            }
            Err(Errno::INTR) => self.go_on(store, buffers, port),
            Err(error) => Err(error),
        }
    }
}

fn chunk(left: u64) -> usize {
    left.min(CHUNK as u64) as usize
}

fn check(result: i32) -> Result<u32, Errno> {
    u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}
