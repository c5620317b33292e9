//! What other threads tell a thread about the requests it owns.

use super::calls::Call;
use emulation::{IoResult, Next, Plan, RequestId, VolumeId};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// One message to a thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// How a request of this thread goes on, or a plan of the device's own to run.
    Next(RequestId, Next),
    /// A plan of this thread comes back from the commit of its last step.
    Committed(Plan, IoResult),
    /// How far the file system came with the copy of a job of this thread, as an operation of the ring would say it.
    Copied(usize, i32),
    /// A new request of a door in tokio.
    Call(Call),
    /// End this request of this thread early.
    Abort(RequestId),
    /// Ask the pool what is due.
    Wake,
    /// Wait no longer for the instants of a volume's plans.
    Hurry(VolumeId),
    /// End when nothing is left to do.
    Stop,
}

/// The mailbox of one thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    event: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { messages: Mutex::default(), event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Readable when there is mail.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn post(&self, message: Message) {
        self.post_all([message]);
    }

    /// Posts messages with one wake-up.
    pub(crate) fn post_all(&self, more: impl IntoIterator<Item = Message>) {
        let first = {
            let mut messages = self.messages.lock().expect("a panic ends the process");
            let first = messages.is_empty();
            messages.extend(more);
            first && !messages.is_empty()
        };
        // Whoever found mail before this one has written, or is about to.
        if first {
            rustix::io::write(&self.event, &1u64.to_ne_bytes()).expect("an eventfd takes 2^64 - 2 wake-ups");
        }
    }

    /// Takes all mail. `to` is empty and lends its memory to the mail to come.
    pub(crate) fn take(&self, to: &mut Vec<Message>) {
        debug_assert!(to.is_empty());
        std::mem::swap(&mut *self.messages.lock().expect("a panic ends the process"), to);
    }
}
