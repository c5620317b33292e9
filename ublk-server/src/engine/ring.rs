//! The io_uring of one thread: commands to a ublk queue, file I/O of plans, and the thread's mailbox.
//!
//! The one file with `unsafe` for submissions. What the kernel may touch is owned by the ring while it may: buffers of
//! file I/O are handed in and come back with the completion, those of a ublk queue are lent out only while
//! the kernel has no command for their tag.

use super::mailbox::Mailbox;
use crate::store::Buffer;
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// One command for a tag of a ublk queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueCommand {
    /// `UBLK_U_IO_*`.
    pub(crate) op: u32,
    /// Queue.
    pub(crate) queue: u16,
    /// Tag.
    pub(crate) tag: u16,
    /// The result of the request that the command answers.
    pub(crate) result: i32,
    /// What the driver takes beside the result, with user copy only: the bytes that a failed copy did all the same, or where
    /// an append went, in sectors of 512 bytes; else 0.
    pub(crate) beside: u64,
}

/// File I/O of a plan's step.
#[derive(Debug)]
pub(crate) enum FileOp {
    /// File to the first `len` bytes of the buffer after `skip`.
    Read { buffer: Buffer, skip: usize, len: usize, position: u64 },
    /// The first `len` bytes of the buffer after `skip` to the file.
    Write { buffer: Buffer, skip: usize, len: usize, position: u64 },
    /// `fallocate`.
    Allocate { mode: i32, position: u64, len: u64 },
    /// `fdatasync`.
    Sync,
}

/// What the kernel has done.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command for a tag ended.
    Queue { tag: u16, result: i32 },
    /// The file I/O of a job ended.
    File { job: usize, result: i32, buffer: Option<Buffer> },
    /// There is mail.
    Mail,
}

/// How long to wait for an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// At most so long.
    For(Duration),
    /// Until there is one.
    Forever,
}

/// The ublk queue that a ring serves.
#[derive(Debug)]
pub(crate) struct QueueSetup {
    /// `/dev/ublkcN`.
    pub(crate) device: Arc<File>,
    /// Requests in flight.
    pub(crate) depth: u16,
    /// The size of the buffer of each tag; `None` with user copy.
    pub(crate) buffer: Option<usize>,
}

const KIND_SHIFT: u32 = 56;
const KIND_QUEUE: u64 = 0;
const KIND_FILE: u64 = 1;
const KIND_MAIL: u64 = 2;

/// The ring. Made and used by one thread.
pub(crate) struct Ring {
    ring: IoUring,
    mailbox: Arc<Mailbox>,
    /// Where the kernel puts the count of wake-ups; never freed, as a read of it is always under way.
    mail_count: *mut u64,
    /// By job. The file stays open and the buffer stays where it is until the kernel is done with them.
    in_flight: Vec<Option<(Arc<File>, Option<Buffer>)>>,
    /// By tag: the kernel has a command for it.
    fetching: Vec<bool>,
    /// By tag, without user copy.
    buffers: Vec<Buffer>,
    _device: Option<Arc<File>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("fd", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring for `jobs` plans at once and a ublk queue, if any. Called on the thread that will use it.
    pub(crate) fn new(mailbox: Arc<Mailbox>, jobs: usize, queue: Option<QueueSetup>) -> io::Result<Self> {
        let depth = queue.as_ref().map_or(0, |queue| usize::from(queue.depth));
        // Each tag and job has one entry at a time, the mailbox one more.
        let entries = (depth + jobs + 1).next_power_of_two() as u32;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries)?;
        if let Some(queue) = &queue {
            ring.submitter().register_files(&[queue.device.as_raw_fd()])?;
        }
        let buffer = queue.as_ref().and_then(|queue| queue.buffer);
        let mut ring = Self {
            ring,
            mailbox,
            mail_count: Box::leak(Box::new(0)),
            in_flight: Vec::new(),
            fetching: vec![false; depth],
            buffers: buffer.map_or(Vec::new(), |len| (0..depth).map(|_| Buffer::zeroed(len)).collect()),
            _device: queue.map(|queue| queue.device),
        };
        ring.expect_mail();
        Ok(ring)
    }

    /// Queues a command for a tag; its event says when there is a request for it.
    pub(crate) fn command(&mut self, command: QueueCommand) {
        let tag = usize::from(command.tag);
        assert!(!self.fetching[tag], "tag {tag} is answered once");
        self.fetching[tag] = true;
        // The driver has both in one place: without user copy each tag has a buffer, and nothing is said beside.
        let address = self.buffers.get(tag).map_or(command.beside, |buffer| buffer.bytes().as_ptr() as u64);
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&command.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&command.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&command.result.to_ne_bytes());
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
        let entry = opcode::UringCmd16::new(Fixed(0), command.op).cmd(bytes).build();
        self.push(entry, KIND_QUEUE, tag as u64);
    }

    /// The buffer of a tag whose request this thread has; without user copy.
    pub(crate) fn queue_buffer(&mut self, tag: u16) -> &mut [u8] {
        let tag = usize::from(tag);
        assert!(!self.fetching[tag], "the kernel has the buffer of tag {tag}");
        self.buffers[tag].bytes_mut()
    }

    /// Queues file I/O of a job, one at a time for each.
    pub(crate) fn file(&mut self, job: usize, file: &Arc<File>, op: FileOp) {
        if self.in_flight.len() <= job {
            self.in_flight.resize_with(job + 1, || None);
        }
        assert!(self.in_flight[job].is_none(), "job {job} has one operation at a time");
        let fd = Fd(file.as_raw_fd());
        let (entry, buffer) = match op {
            FileOp::Read { mut buffer, skip, len, position } => {
                let part = &mut buffer.bytes_mut()[skip..skip + len];
                let entry =
                    opcode::Read::new(fd, part.as_mut_ptr(), part.len() as u32).offset(position).build();
                (entry, Some(buffer))
            }
            FileOp::Write { buffer, skip, len, position } => {
                let part = &buffer.bytes()[skip..skip + len];
                let entry = opcode::Write::new(fd, part.as_ptr(), part.len() as u32).offset(position).build();
                (entry, Some(buffer))
            }
            FileOp::Allocate { mode, position, len } => {
                (opcode::Fallocate::new(fd, len).offset(position).mode(mode).build(), None)
            }
            FileOp::Sync => (opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(), None),
        };
        self.in_flight[job] = Some((Arc::clone(file), buffer));
        self.push(entry, KIND_FILE, job as u64);
    }

    /// Submits what is queued, waits as told, and appends what the kernel has done.
    pub(crate) fn enter(&mut self, wait: Wait, events: &mut Vec<Event>) {
        let submission = self.ring.submission();
        let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        let result = match wait {
            Wait::No if idle => Ok(0),
            Wait::No => self.ring.submit(),
            Wait::Forever => self.ring.submit_and_wait(1),
            Wait::For(time) => {
                let time = Timespec::from(time);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        check_enter(result);
        self.reap(events);
    }

    fn reap(&mut self, events: &mut Vec<Event>) {
        let mut mail = false;
        for entry in self.ring.completion() {
            let (kind, index) = (entry.user_data() >> KIND_SHIFT, entry.user_data() & 0xffff_ffff);
            let index = index as usize;
            match kind {
                KIND_QUEUE => {
                    self.fetching[index] = false;
                    events.push(Event::Queue { tag: index as u16, result: entry.result() });
                }
                KIND_FILE => {
                    let (_, buffer) = self.in_flight[index].take().expect("an operation ends once");
                    events.push(Event::File { job: index, result: entry.result(), buffer });
                }
                KIND_MAIL => mail = true,
                _ => panic!("an event of no kind: {:#x}", entry.user_data()),
            }
        }
        if mail {
            events.push(Event::Mail);
            self.expect_mail();
        }
    }

    fn expect_mail(&mut self) {
        let fd: RawFd = self.mailbox.event().as_raw_fd();
        let entry = opcode::Read::new(Fd(fd), self.mail_count.cast(), size_of::<u64>() as u32).build();
        self.push(entry, KIND_MAIL, 0);
    }

    fn push(&mut self, entry: squeue::Entry, kind: u64, index: u64) {
        /// A full queue is emptied by one submission, except under memory pressure.
        const TRIES: u32 = 1000;
        let entry = entry.user_data(kind << KIND_SHIFT | index);
        for _ in 0..TRIES {
            // SAFETY: what the entry points to stays valid until its completion: a tag's buffer is in `buffers`, a
            // job's file and buffer are in `in_flight`, `mail_count` is never freed, and `drop` frees none of them
            // while an entry is out.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            check_enter(self.ring.submit());
        }
        panic!("io_uring took no entry in {TRIES} tries");
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel goes on with what is in flight after the ring is closed.
        if self.in_flight.iter().any(Option::is_some) {
            std::mem::forget(std::mem::take(&mut self.in_flight));
        }
        if self.fetching.contains(&true) {
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

/// Interruptions and shortages pass; the loop enters again. Anything else is a bug here.
fn check_enter(result: io::Result<usize>) {
    if let Err(error) = result {
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY) => {}
            _ => panic!("io_uring_enter: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::mailbox::Message;

    fn enter(ring: &mut Ring) -> Vec<Event> {
        let mut events = Vec::new();
        ring.enter(Wait::For(Duration::from_secs(10)), &mut events);
        events
    }

    #[test]
    fn mail_wakes_each_time_and_a_wait_ends() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let mut ring = Ring::new(Arc::clone(&mailbox), 1, None).unwrap();
        for _ in 0..3 {
            mailbox.post(Message::Wake);
            mailbox.post(Message::Stop);
            assert!(matches!(enter(&mut ring)[..], [Event::Mail]));
            let mut mail = Vec::new();
            mailbox.take(&mut mail);
            assert!(matches!(mail[..], [Message::Wake, Message::Stop]));
        }
        let mut events = Vec::new();
        ring.enter(Wait::For(Duration::from_millis(1)), &mut events);
        ring.enter(Wait::No, &mut events);
        assert!(events.is_empty(), "{events:?}");
    }

    #[test]
    fn file_io_hands_its_buffer_back() {
        let path = std::env::temp_dir().join(format!("ublk-ring-{}", std::process::id()));
        std::fs::write(&path, [3; 4096]).unwrap();
        let file = Arc::new(File::options().read(true).write(true).open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let mut ring = Ring::new(Arc::new(Mailbox::new().unwrap()), 1, None).unwrap();
        let buffer = Buffer::zeroed(1024);
        ring.file(0, &file, FileOp::Read { buffer, skip: 512, len: 512, position: 0 });
        let mut events = enter(&mut ring);
        let Some(Event::File { job: 0, result: 512, buffer: Some(buffer) }) = events.pop() else {
            panic!("{events:?}")
        };
        assert_eq!(buffer.bytes()[..512], [0; 512]);
        assert_eq!(buffer.bytes()[512..], [3; 512]);
    }
}
