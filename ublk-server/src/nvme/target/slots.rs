//! The live commands of a connection.

use super::Tag;
use super::io::Job;
use crate::nvme::wire::command::Sqe;
use std::collections::HashMap;

/// How far a command is.
#[derive(Debug)]
pub(super) enum Phase {
    /// It waits until the connection may hold its data.
    Waiting,
    /// Its data is on the way.
    Receiving {
        /// What has come.
        data: Vec<u8>,
        /// So much is to come in all.
        len: usize,
        /// A part of it had a wrong digest.
        spoilt: bool,
    },
    /// The target has it.
    AtTarget,
    /// The pool has it.
    AtPool(Job),
}

/// A command.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) sqe: Sqe,
    pub(super) phase: Phase,
    /// Bytes of data that it holds or will.
    pub(super) held: usize,
    /// The host wants it to end.
    pub(super) aborted: bool,
}

/// Live commands, by tag and by the host's number.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<Tag>,
    by_cid: HashMap<u16, Tag>,
}

impl Slots {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_cid.len()
    }

    /// The live command with this number of the host's.
    pub(super) fn find(&self, cid: u16) -> Option<Tag> {
        self.by_cid.get(&cid).copied()
    }

    /// Adds a command. Its number is not live, and there are fewer than 65,536.
    pub(super) fn insert(&mut self, slot: Slot) -> Tag {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Tag(u16::try_from(self.slots.len() - 1).expect("a queue has at most 65,536 entries"))
        });
        let before = self.by_cid.insert(slot.sqe.cid.get(), tag);
        debug_assert!(before.is_none(), "the number was checked");
        self.slots[usize::from(tag.0)] = Some(slot);
        tag
    }

    /// The live command with this tag.
    pub(super) fn get(&mut self, tag: Tag) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(tag.0))?.as_mut()
    }

    /// Takes a command out.
    pub(super) fn remove(&mut self, tag: Tag) -> Option<Slot> {
        let slot = self.slots.get_mut(usize::from(tag.0))?.take()?;
        self.by_cid.remove(&slot.sqe.cid.get());
        self.free.push(tag);
        Some(slot)
    }
}
