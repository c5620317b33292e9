//! What lives from one call to a later one, found by its key without a search.

/// The bits of a key that say where the item is. Those above them tell one item of a place from the next.
const PLACE_BITS: u32 = 20;

/// Items by keys that the container chooses. A key is below 2^63, and comes again after 2^43 others at the earliest.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<Option<(u64, T)>>,
    free: Vec<usize>,
    inserted: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), inserted: 0 }
    }
}

impl<T> Slots<T> {
    /// Keeps an item. Panics when there are a million already.
    pub(crate) fn insert(&mut self, item: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        assert!(place < 1 << PLACE_BITS, "more than a million items live");
        self.inserted = (self.inserted + 1) & ((1 << (63 - PLACE_BITS)) - 1);
        let key = self.inserted << PLACE_BITS | place as u64;
        self.places[place] = Some((key, item));
        key
    }

    /// Takes an item out; `None` when there is none of this key.
    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let place = (key & ((1 << PLACE_BITS) - 1)) as usize;
        let (_, item) = self.places.get_mut(place)?.take_if(|(found, _)| *found == key)?;
        self.free.push(place);
        Some(item)
    }

    /// The items, in no order of interest but the same in every run.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().map(|(_, item)| item)
    }

    /// The same, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|(_, item)| item)
    }

    /// The number of items.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_good_for_one_item() {
        let mut slots = Slots::default();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!((slots.remove(a), slots.remove(a)), (Some('a'), None));
        let c = slots.insert('c');
        assert!(c != a && c != b && slots.remove(a).is_none(), "a place is used again, a key is not");
        slots.values_mut().for_each(|item| item.make_ascii_uppercase());
        assert_eq!(slots.values().collect::<String>(), "CB");
        assert_eq!((slots.remove(b), slots.len(), slots.is_empty()), (Some('B'), 1, false));
        assert_eq!((slots.remove(c), slots.is_empty(), slots.remove(u64::MAX)), (Some('C'), true, None));
    }
}
