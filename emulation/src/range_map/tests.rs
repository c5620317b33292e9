//! Against a model that keeps the value of every key.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The value of each key that has one.
type Model<V> = BTreeMap<u64, V>;

/// What a step of a test does with a range of keys.
#[derive(Clone, Debug)]
enum Act {
    Insert(Range<u64>, u64),
    Remove(Range<u64>),
    Update(Range<u64>, u64),
    Read(Range<u64>),
}

fn pieces_of<V: RangeValue>(model: &Model<V>, range: Range<u64>) -> Vec<Piece<V>> {
    let mut pieces: Vec<Piece<V>> = Vec::new();
    for (&key, &value) in model.range(range.start..range.end.max(range.start)) {
        let one = Piece { range: key..key + 1, value };
        match pieces.last_mut().filter(|last| last.continued_by(&one)) {
            Some(last) => last.range.end = key + 1,
            None => pieces.push(one),
        }
    }
    pieces
}

fn insert_model<V: RangeValue>(model: &mut Model<V>, range: Range<u64>, value: V) {
    for (offset, key) in range.enumerate() {
        model.insert(key, value.at(offset as u64));
    }
}

fn remove_model<V: RangeValue>(model: &mut Model<V>, range: Range<u64>) {
    for key in range {
        model.remove(&key);
    }
}

/// What `update` does to a piece or hole: something that makes holes, fills them, and joins neighbours.
fn rewritten<V: RangeValue>(old: Option<V>, seed: u64, value: impl Fn(u64) -> V) -> Option<V> {
    match (old, seed % 4) {
        (Some(_), 0) => None,
        (Some(old), 1) => Some(old),
        (Some(_), _) | (None, 2) => Some(value(seed)),
        (None, _) => None,
    }
}

fn holds<V: RangeValue>(map: &RangeMap<V>, model: &Model<V>, keys: Range<u64>) {
    assert_eq!(map.check(), Ok(()));
    assert_eq!(map.keys(), model.len() as u64);
    let pieces = pieces_of(model, keys);
    assert_eq!(map.len(), pieces.len());
    assert_eq!(map.is_empty(), pieces.is_empty());
    assert_eq!(map.iter().collect::<Vec<_>>(), pieces);
}

fn reads<V: RangeValue>(map: &RangeMap<V>, model: &Model<V>, range: Range<u64>) {
    assert_eq!(map.overlapping(range.clone()).collect::<Vec<_>>(), pieces_of(model, range.clone()));
    let mut at = range.start;
    let mut pieces = Vec::new();
    let mut was_hole = false;
    for (part, value) in map.pieces_and_holes(range.clone()) {
        assert!(part.start == at && part.start < part.end);
        at = part.end;
        assert!(!(was_hole && value.is_none()), "two holes in a row at {}", part.start);
        was_hole = value.is_none();
        pieces.extend(value.map(|value| Piece { range: part, value }));
    }
    assert_eq!(at, range.end.max(range.start));
    assert_eq!(pieces, pieces_of(model, range.clone()));
    for key in range {
        let whole = map.get(key);
        assert_eq!(whole.is_some(), model.contains_key(&key));
        if let Some(whole) = whole {
            assert_eq!(Some(&whole.value.at(key - whole.range.start)), model.get(&key));
            assert!(map.iter().any(|piece| piece == whole));
        }
    }
}

fn run<V: RangeValue>(acts: Vec<Act>, keys: Range<u64>, value: impl Fn(u64) -> V) {
    let mut map = RangeMap::new();
    let mut model = Model::new();
    for act in acts {
        let mut removed = Vec::new();
        let expected;
        match act {
            Act::Insert(range, seed) => {
                expected = pieces_of(&model, range.clone());
                map.insert(range.clone(), value(seed), &mut |piece| removed.push(piece));
                insert_model(&mut model, range, value(seed));
            }
            Act::Remove(range) => {
                expected = pieces_of(&model, range.clone());
                map.remove(range.clone(), &mut |piece| removed.push(piece));
                remove_model(&mut model, range);
            }
            Act::Update(range, seed) => {
                expected = Vec::new();
                let before: Vec<_> = map.pieces_and_holes(range.clone()).collect();
                let mut seen = Vec::new();
                map.update(range, &mut |part, old| {
                    seen.push((part.clone(), old));
                    rewritten(old, seed + seen.len() as u64, &value)
                });
                assert_eq!(seen, before, "every piece and hole is rewritten once, from its old value");
                for (index, (part, old)) in (1..).zip(seen) {
                    match rewritten(old, seed + index, &value) {
                        Some(value) => insert_model(&mut model, part, value),
                        None => remove_model(&mut model, part),
                    }
                }
            }
            Act::Read(range) => {
                expected = Vec::new();
                reads(&map, &model, range);
            }
        }
        assert_eq!(removed, expected, "what is replaced is handed out, clipped, in order");
        holds(&map, &model, keys.clone());
    }
}

/// Acts on keys from `base` on: `width` keys, in ranges of up to `longest`.
fn acts(base: u64, width: u64, longest: u64, count: usize) -> impl Strategy<Value = Vec<Act>> {
    let range =
        (0..width, 0..=longest).prop_map(move |(start, len)| base + start..base + (start + len).min(width));
    let act = prop_oneof![
        6 => (range.clone(), 0..8u64).prop_map(|(range, seed)| Act::Insert(range, seed)),
        3 => range.clone().prop_map(Act::Remove),
        1 => (range.clone(), 0..8u64).prop_map(|(range, seed)| Act::Update(range, seed)),
        1 => range.prop_map(Act::Read),
    ];
    prop::collection::vec(act, 1..count)
}

proptest! {
    #[test]
    fn like_the_model_with_counts(acts in acts(0, 40, 12, 120)) {
        run(acts, 0..40, |seed| u32::try_from(seed % 3).unwrap());
    }

    #[test]
    fn like_the_model_as_a_set(acts in acts(0, 40, 12, 120)) {
        run(acts, 0..40, |_| ());
    }

    #[test]
    fn like_the_model_with_physical_blocks(acts in acts(0, 60, 12, 120)) {
        run(acts, 0..60, |seed| Physical(seed * 8));
    }

    #[test]
    fn like_the_model_up_to_the_last_key(acts in acts(u64::MAX - 60, 60, 12, 80)) {
        run(acts, u64::MAX - 60..u64::MAX, |seed| Physical(seed * 8));
    }
}

/// A map with a model that has a place for each key, for many pieces: leaves and tables split, run empty and are
/// joined.
struct Large {
    map: RangeMap<Physical>,
    model: Vec<Option<Physical>>,
}

impl Large {
    const KEYS: u64 = 1 << 16;

    fn new() -> Self {
        Self { map: RangeMap::new(), model: vec![None; usize::try_from(Self::KEYS).unwrap()] }
    }

    /// Takes what the model has in `range` out of it, as pieces.
    fn take(&mut self, range: &Range<u64>) -> Vec<Piece<Physical>> {
        let mut pieces: Vec<Piece<Physical>> = Vec::new();
        for key in range.clone() {
            let Some(value) = self.model[usize::try_from(key).unwrap()].take() else {
                continue;
            };
            match pieces.last_mut().filter(|last| last.continued_by(&Piece { range: key..key + 1, value })) {
                Some(last) => last.range.end = key + 1,
                None => pieces.push(Piece { range: key..key + 1, value }),
            }
        }
        pieces
    }

    fn insert(&mut self, range: Range<u64>, value: Physical) {
        let range = range.start..range.end.min(Self::KEYS);
        let mut removed = Vec::new();
        self.map.insert(range.clone(), value, &mut |piece| removed.push(piece));
        assert_eq!(removed, self.take(&range));
        for key in range.clone() {
            self.model[usize::try_from(key).unwrap()] = Some(value.at(key - range.start));
        }
    }

    fn remove(&mut self, range: Range<u64>) {
        let range = range.start..range.end.min(Self::KEYS);
        let mut removed = Vec::new();
        self.map.remove(range.clone(), &mut |piece| removed.push(piece));
        assert_eq!(removed, self.take(&range));
    }

    fn check(&mut self) {
        assert_eq!(self.map.check(), Ok(()));
        for (key, &value) in (0..).zip(&self.model) {
            let piece = self.map.get(key);
            assert_eq!(piece.map(|piece| piece.value.at(key - piece.range.start)), value, "key {key}");
        }
        let bytes = self.map.memory();
        let pieces = self.map.len() as u64;
        assert!(bytes <= 96 * pieces + 8192, "{bytes} bytes for {pieces} pieces");
        let mut other = Self { map: RangeMap::new(), model: self.model.clone() };
        assert_eq!(self.map.iter().collect::<Vec<_>>(), other.take(&(0..Self::KEYS)));
    }
}

/// What is done to a large map, in this order.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Every second key in order.
    Fill,
    /// Single keys anywhere.
    Singles,
    /// Single keys in ascending runs from anywhere.
    Ascending,
    /// Single keys downwards.
    Descending,
    /// Short ranges anywhere.
    Short,
    /// Long ranges anywhere.
    Long,
    RemoveShort,
    /// Ranges of several leaves.
    RemoveLeaves,
    RemoveLong,
}

const PHASES: [Phase; 16] = [
    Phase::Singles,
    Phase::RemoveShort,
    Phase::Fill,
    Phase::RemoveLeaves,
    Phase::Singles,
    Phase::Ascending,
    Phase::RemoveLeaves,
    Phase::Ascending,
    Phase::Long,
    Phase::Descending,
    Phase::RemoveLong,
    Phase::Short,
    Phase::Fill,
    Phase::RemoveShort,
    Phase::RemoveLeaves,
    Phase::Descending,
];

impl Large {
    fn step(&mut self, phase: Phase, step: u64, (place, extra): (u64, u64)) {
        // No value follows another by chance.
        let value = Physical((1 << 32) * (1 + extra));
        let (often, seldom) = (step.is_multiple_of(8), step.is_multiple_of(80));
        match phase {
            Phase::Fill => {
                for key in (step * 32..step * 32 + 32).step_by(2).filter(|&key| key < Self::KEYS) {
                    self.insert(key..key + 1, value);
                }
            }
            Phase::Singles => self.insert(place..place + 1, value),
            Phase::Ascending => {
                let key = (step / 200 * 7919 + step % 200 * 2 + 1) % Self::KEYS;
                self.insert(key..key + 1, value);
            }
            Phase::Descending => {
                let key = Self::KEYS - 1 - step * 3;
                self.insert(key..key + 1, value);
            }
            Phase::Short => self.insert(place..place + extra % 8, value),
            Phase::Long if seldom => self.insert(place..place + extra % 5000, value),
            Phase::RemoveShort => self.remove(place..place + extra % 40),
            Phase::RemoveLeaves if often => self.remove(place..place + extra % 500),
            Phase::RemoveLong if seldom => self.remove(place..place + extra % 20_000),
            Phase::Long | Phase::RemoveLeaves | Phase::RemoveLong => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn like_the_model_with_many_pieces(
        numbers in prop::collection::vec((0..Large::KEYS, 0..1u64 << 16), 2048 * PHASES.len()),
    ) {
        let mut large = Large::new();
        for (phase, numbers) in PHASES.into_iter().zip(numbers.chunks(2048)) {
            for (step, &numbers) in (0..).zip(numbers) {
                large.step(phase, step, numbers);
                if step % 512 == 0 {
                    assert_eq!(large.map.check(), Ok(()), "{phase:?}");
                }
            }
            large.check();
        }
    }
}

#[test]
fn tables_that_become_small_are_joined() {
    let mut large = Large::new();
    for step in 0..Large::KEYS / 32 {
        large.step(Phase::Fill, step, (0, 0));
    }
    large.check();
    for start in (0..Large::KEYS).step_by(1024) {
        large.remove(start..start + 600);
        assert_eq!(large.map.check(), Ok(()));
    }
    for start in (0..Large::KEYS / 128).rev().map(|leaf| leaf * 128) {
        large.remove(start..start + 128);
        assert_eq!(large.map.check(), Ok(()));
    }
    large.check();
    assert!(large.map.is_empty());
}

fn nothing<V>(_: Piece<V>) {}

#[test]
fn a_sequential_fill_is_one_piece() {
    const BLOCKS: u64 = 1 << 28;
    let mut map = RangeMap::new();
    // 1 TiB in blocks of 4 KiB: small writes for a while, then long ones.
    for block in 0..100_000 {
        map.insert(block..block + 1, Physical(7 + block), &mut nothing);
    }
    let mut at = 100_000;
    while at < BLOCKS {
        let end = BLOCKS.min(at + 1000);
        map.insert(at..end, Physical(7 + at), &mut nothing);
        at = end;
    }
    assert_eq!(map.iter().collect::<Vec<_>>(), [Piece { range: 0..BLOCKS, value: Physical(7) }]);
    assert_eq!((map.len(), map.keys()), (1, BLOCKS));
}

#[test]
fn what_is_inserted_becomes_one_with_both_neighbours() {
    let mut map = RangeMap::new();
    map.insert(10..20, Physical(110), &mut nothing);
    map.insert(30..40, Physical(130), &mut nothing);
    map.insert(20..30, Physical(500), &mut nothing);
    assert_eq!(map.len(), 3, "values that do not follow");
    let mut removed = Vec::new();
    map.insert(20..30, Physical(120), &mut |piece| removed.push(piece));
    assert_eq!(removed, [Piece { range: 20..30, value: Physical(500) }]);
    assert_eq!(map.iter().collect::<Vec<_>>(), [Piece { range: 10..40, value: Physical(110) }]);
    assert_eq!(map.check(), Ok(()));
}

#[test]
fn one_long_piece_is_replaced_as_one() {
    let mut map = RangeMap::new();
    map.insert(0..1 << 40, Physical(0), &mut nothing);
    let mut removed = Vec::new();
    map.insert(5..1 << 39, Physical(1 << 50), &mut |piece| removed.push(piece));
    assert_eq!(removed, [Piece { range: 5..1 << 39, value: Physical(5) }]);
    map.remove(7..9, &mut |piece| removed.push(piece));
    assert_eq!(removed[1], Piece { range: 7..9, value: Physical((1 << 50) + 2) });
    assert_eq!((map.len(), map.keys()), (4, (1 << 40) - 2));
}

#[test]
fn counts_go_up_and_down_again() {
    let mut map: RangeMap<u32> = RangeMap::new();
    let up = &mut |_: Range<u64>, count: Option<u32>| Some(count.unwrap_or(1) + 1);
    map.update(10..20, up);
    map.update(15..25, up);
    let piece = |range, value| Piece { range, value };
    assert_eq!(map.iter().collect::<Vec<_>>(), [piece(10..15, 2), piece(15..20, 3), piece(20..25, 2)]);
    let down =
        &mut |_: Range<u64>, count: Option<u32>| count.map(|count| count - 1).filter(|&count| count > 1);
    map.update(10..20, down);
    assert_eq!(map.iter().collect::<Vec<_>>(), [piece(15..25, 2)]);
    map.update(0..100, down);
    assert!(map.is_empty());
    assert_eq!(map.check(), Ok(()));
}

#[test]
fn an_emptied_map_is_filled_again_anywhere() {
    let mut map = RangeMap::new();
    for start in [5, 100, 0, 7] {
        map.insert(start..start + 3, 1, &mut nothing);
        assert_eq!(map.check(), Ok(()));
        assert_eq!(map.get(start + 2), Some(Piece { range: start..start + 3, value: 1u32 }));
        map.remove(start..start + 3, &mut nothing);
        assert_eq!(map.check(), Ok(()));
        assert!(map.is_empty());
        assert_eq!((map.get(start), map.overlapping(0..200).next(), map.iter().next()), (None, None, None));
        assert_eq!(map.pieces_and_holes(0..200).collect::<Vec<_>>(), [(0..200, None)]);
        map.remove(0..200, &mut |piece| panic!("{piece:?}"));
    }
}

#[test]
fn empty_ranges_change_nothing() {
    let mut map = RangeMap::new();
    map.insert(5..5, (), &mut nothing);
    assert!(map.is_empty());
    map.insert(5..9, (), &mut nothing);
    map.insert(7..7, (), &mut |piece| panic!("{piece:?}"));
    map.remove(7..7, &mut |piece| panic!("{piece:?}"));
    map.update(7..7, &mut |range, _| panic!("{range:?}"));
    assert_eq!(map.overlapping(7..7).count(), 0);
    assert_eq!(map.pieces_and_holes(7..7).count(), 0);
    assert_eq!(map.iter().collect::<Vec<_>>(), [Piece { range: 5..9, value: () }]);
}
