//! The leaves of a range map in order, and how the one for a key is found.
//!
//! Always three levels: one list of tables, tables of up to [`TABLE_LEAVES`] leaves, leaves. Ten million pieces
//! have some 2,500 tables; what a change of the list of tables costs grows with their number, and it changes
//! once in thousands of insertions.

use super::RangeValue;
use super::leaf::{Leaf, count_below};
use std::mem::size_of;

/// The most leaves of a table.
const TABLE_LEAVES: usize = 128;
/// Two tables that follow each other are joined when they have at most so many leaves together.
const JOIN_LEAVES: usize = TABLE_LEAVES / 2;

/// Where a leaf is. A change of the index makes it void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    table: usize,
    leaf: usize,
}

/// Leaves in order.
#[derive(Clone, Debug)]
pub(super) struct Index<V> {
    /// The first key of each table.
    firsts: Vec<u64>,
    tables: Vec<Table<V>>,
    leaves: usize,
}

/// Some leaves in order, never none.
#[derive(Clone, Debug)]
struct Table<V> {
    /// The first key of each leaf.
    firsts: Vec<u64>,
    leaves: Vec<Box<Leaf<V>>>,
}

impl<V: RangeValue> Table<V> {
    fn new() -> Self {
        Self { firsts: Vec::with_capacity(TABLE_LEAVES), leaves: Vec::with_capacity(TABLE_LEAVES) }
    }

    fn insert(&mut self, at: usize, leaf: Box<Leaf<V>>) {
        self.firsts.insert(at, leaf.first_key());
        self.leaves.insert(at, leaf);
    }

    /// Adds the leaves of `next` from number `from` on, and takes them out there.
    fn take(&mut self, next: &mut Self, from: usize) {
        self.firsts.extend(next.firsts.drain(from..));
        self.leaves.extend(next.leaves.drain(from..));
    }
}

impl<V: RangeValue> Index<V> {
    pub(super) fn new() -> Self {
        Self { firsts: Vec::new(), tables: Vec::new(), leaves: 0 }
    }

    /// The last leaf that begins before `key`, or else the first; `None` when there are none.
    pub(super) fn before(&self, key: u64) -> Option<Place> {
        let table = self.firsts.partition_point(|&first| first < key).saturating_sub(1);
        let leaf = count_below(&self.tables.get(table)?.firsts, key).saturating_sub(1);
        Some(Place { table, leaf })
    }

    pub(super) fn leaf(&self, place: Place) -> &Leaf<V> {
        &self.tables[place.table].leaves[place.leaf]
    }

    /// A leaf to be changed. When its first key changes, [`Index::settle`] must follow.
    pub(super) fn leaf_mut(&mut self, place: Place) -> &mut Leaf<V> {
        &mut self.tables[place.table].leaves[place.leaf]
    }

    /// All leaves.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &Leaf<V>> {
        self.tables.iter().flat_map(|table| &table.leaves).map(Box::as_ref)
    }

    pub(super) fn next(&self, place: Place) -> Option<Place> {
        if place.leaf + 1 < self.tables[place.table].leaves.len() {
            return Some(Place { leaf: place.leaf + 1, ..place });
        }
        (place.table + 1 < self.tables.len()).then_some(Place { table: place.table + 1, leaf: 0 })
    }

    pub(super) fn previous(&self, place: Place) -> Option<Place> {
        if let Some(leaf) = place.leaf.checked_sub(1) {
            return Some(Place { leaf, ..place });
        }
        let table = place.table.checked_sub(1)?;
        Some(Place { table, leaf: self.tables[table].leaves.len() - 1 })
    }

    /// Adds a leaf behind the one at `place`; the first leaf of all when that is `None`.
    pub(super) fn insert_after(&mut self, place: Option<Place>, leaf: Leaf<V>) {
        let leaf = Box::new(leaf);
        self.leaves += 1;
        let Some(place) = place else {
            assert!(self.tables.is_empty(), "an index with leaves has a place for the next");
            self.firsts.push(leaf.first_key());
            self.tables.push(Table::new());
            self.tables[0].insert(0, leaf);
            return;
        };
        let Place { table, leaf: before } = place;
        let at = before + 1;
        if self.tables[table].leaves.len() < TABLE_LEAVES {
            self.tables[table].insert(at, leaf);
            return;
        }
        let mut high = Table::new();
        if at == TABLE_LEAVES && table + 1 == self.tables.len() {
            // Growth at the end, as when a map is filled in order: the table stays full.
            high.insert(0, leaf);
        } else {
            let middle = TABLE_LEAVES / 2;
            high.take(&mut self.tables[table], middle);
            match at.checked_sub(middle) {
                Some(at) => high.insert(at, leaf),
                None => self.tables[table].insert(at, leaf),
            }
        }
        self.firsts.insert(table + 1, high.firsts[0]);
        self.tables.insert(table + 1, high);
    }

    /// Takes a leaf out.
    pub(super) fn remove(&mut self, place: Place) -> Box<Leaf<V>> {
        self.leaves -= 1;
        let table = &mut self.tables[place.table];
        table.firsts.remove(place.leaf);
        let leaf = table.leaves.remove(place.leaf);
        if table.leaves.is_empty() {
            self.firsts.remove(place.table);
            self.tables.remove(place.table);
        } else {
            self.firsts[place.table] = table.firsts[0];
            self.join_after(place.table);
        }
        if let Some(before) = place.table.checked_sub(1) {
            self.join_after(before);
        }
        leaf
    }

    /// Takes note that the first key of the leaf at `place` has changed.
    pub(super) fn settle(&mut self, place: Place) {
        let key = self.leaf(place).first_key();
        let table = &mut self.tables[place.table];
        table.firsts[place.leaf] = key;
        self.firsts[place.table] = table.firsts[0];
    }

    fn join_after(&mut self, table: usize) {
        if let Some([low, high]) = self.tables.get_mut(table..).and_then(|tables| tables.first_chunk_mut())
            && low.leaves.len() + high.leaves.len() <= JOIN_LEAVES
        {
            low.take(high, 0);
            self.firsts.remove(table + 1);
            self.tables.remove(table + 1);
        }
    }

    /// The bytes of memory it takes with its leaves, with 16 bytes for what a usual allocator adds to each piece
    /// of memory.
    pub(super) fn memory(&self) -> u64 {
        let leaf = size_of::<Leaf<V>>() + 16;
        let table = TABLE_LEAVES * (size_of::<u64>() + size_of::<Box<Leaf<V>>>()) + 32;
        let list = self.firsts.capacity() * size_of::<u64>() + self.tables.capacity() * size_of::<Table<V>>();
        (self.leaves * leaf + self.tables.len() * table + list) as u64
    }

    /// Checks the order of the leaves and the keys by which they are found.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut leaves = 0;
        for (table, &first) in self.tables.iter().zip(&self.firsts) {
            let sizes = (table.firsts.len(), table.leaves.len());
            if sizes.0 != sizes.1 || sizes.0 == 0 || sizes.0 > TABLE_LEAVES || table.firsts[0] != first {
                return Err(format!("the table at {first} has {sizes:?} keys and leaves"));
            }
            leaves += sizes.1;
            for (&first, leaf) in table.firsts.iter().zip(&table.leaves) {
                let good = if leaf.len() == 0 { self.leaves == 1 } else { leaf.first_key() == first };
                if !good {
                    return Err(format!("the leaf at {first} is empty or begins elsewhere"));
                }
            }
        }
        for pair in self.tables.windows(2) {
            if pair[0].leaves.len() + pair[1].leaves.len() <= JOIN_LEAVES {
                return Err(format!("the table at {} and the one before it are small", pair[1].firsts[0]));
            }
        }
        if self.firsts.len() != self.tables.len() || leaves != self.leaves {
            return Err(format!("{} leaves counted; {leaves} there", self.leaves));
        }
        Ok(())
    }
}
