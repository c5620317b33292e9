//! The thread that commits the metadata of a pool, so that no thread with requests waits for it.

use super::mailbox::{Mailbox, Message};
use crate::store::meta::Meta;
use emulation::{BlkStatus, IoResult, Plan, Step};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A plan whose last step is a commit, with all others done, and whose thread wants it back.
type Work = (Plan, Arc<Mailbox>);

/// The thread, as others see it.
#[derive(Debug)]
pub(super) struct Committer {
    inner: Mutex<Option<(Sender<Work>, JoinHandle<()>)>>,
}

impl Committer {
    pub(super) fn start(meta: Arc<Meta>) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("ublk-commit".into()).spawn(move || serve(&meta, &receiver))?;
        Ok(Self { inner: Mutex::new(Some((sender, thread))) })
    }

    /// Commits; the plan comes back by mail.
    pub(super) fn commit(&self, plan: Plan, mailbox: Arc<Mailbox>) {
        let inner = self.inner.lock().expect("a panic ends the process");
        let (sender, _) = inner.as_ref().expect("it ends after those who send");
        sender.send((plan, mailbox)).expect("it ends after those who send");
    }

    /// Ends the thread when it has done what it was given.
    pub(super) fn stop(&self) {
        if let Some((sender, thread)) = self.inner.lock().expect("a panic ends the process").take() {
            drop(sender);
            thread.join().expect("a panic ends the process");
        }
    }
}

fn serve(meta: &Meta, receiver: &Receiver<Work>) {
    super::enter_io_thread();
    for (plan, mailbox) in receiver {
        let io = commit(meta, &plan);
        mailbox.post(Message::Committed(plan, io));
    }
}

fn commit(meta: &Meta, plan: &Plan) -> IoResult {
    let Some(Step::Commit(commit)) = plan.steps.last() else { panic!("{plan:?} ends with no commit") };
    match meta.commit(commit) {
        Ok(()) => IoResult::done(plan),
        Err(error) => {
            tracing::error!("the metadata cannot be committed: {error}");
            let status = BlkStatus::from_errno(error.errno().raw_os_error());
            IoResult::failed(status, plan.steps.len() - 1)
        }
    }
}
