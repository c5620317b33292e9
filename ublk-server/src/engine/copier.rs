//! The thread that has the file system copy within a file: `copy_file_range` has no operation of the ring, and no thread
//! with requests waits for it.

use super::mailbox::{Mailbox, Message};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A range to copy, and who wants to hear of it.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) file: Arc<File>,
    /// Where it begins, where it goes, and its bytes. Both lie in the file and do not overlap.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: usize,
    /// The job of the thread with this mailbox.
    pub(super) job: usize,
    pub(super) mailbox: Arc<Mailbox>,
}

/// The thread, as others see it.
#[derive(Debug)]
pub(super) struct Copier {
    inner: Mutex<Option<(Sender<Work>, JoinHandle<()>)>>,
}

impl Copier {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("ublk-copy".into()).spawn(move || serve(&receiver))?;
        Ok(Self { inner: Mutex::new(Some((sender, thread))) })
    }

    /// Copies; how far comes back by mail.
    pub(super) fn copy(&self, work: Work) {
        let inner = self.inner.lock().expect("a panic ends the process");
        let (sender, _) = inner.as_ref().expect("it ends after those who send");
        sender.send(work).expect("it ends after those who send");
    }

    /// Ends the thread when it has done what it was given.
    pub(super) fn stop(&self) {
        if let Some((sender, thread)) = self.inner.lock().expect("a panic ends the process").take() {
            drop(sender);
            thread.join().expect("a panic ends the process");
        }
    }
}

fn serve(receiver: &Receiver<Work>) {
    super::enter_io_thread();
    for Work { file, mut from, mut to, len, job, mailbox } in receiver {
        let result = rustix::fs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), len);
        let result = match result {
            Ok(copied) => i32::try_from(copied).expect("a link is short"),
            Err(error) => -Errno::raw_os_error(error),
        };
        mailbox.post(Message::Copied(job, result));
    }
}
