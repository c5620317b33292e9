//! What is admitted, and with which status everything else is refused.

use super::*;
use crate::request::{CopySegment, RequestId, ZoneAction};
use crate::units::Sector;
use proptest::prelude::*;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Sectors of a logical block of the test volumes.
const BLOCK: u64 = 8;
const CAPACITY: u64 = 1 << 20;
const OWN: VolumeId = VolumeId(0);
const OTHER: VolumeId = VolumeId(1);
/// A volume with logical blocks of 512 bytes.
const SMALL_BLOCKS: VolumeId = VolumeId(2);
const NO_VOLUME: VolumeId = VolumeId(3);

fn own_limits() -> Limits {
    Limits {
        max_io: Sectors(32 * BLOCK),
        copy_max_bytes: Sectors(64 * BLOCK).bytes(),
        copy_max_segment_bytes: Sectors(16 * BLOCK).bytes(),
        copy_max_segments: 8,
        ..Limits::new(Sectors(CAPACITY), Sectors(BLOCK), Sectors(BLOCK))
    }
}

/// The verdict on a request to volume 0 with the limits `own`, beside the other two volumes.
fn admitted_by(own: Limits, volume: VolumeId, op: Op, flags: Flags) -> Result<(), BlkStatus> {
    let other = Limits::new(Sectors(CAPACITY / 2), Sectors(BLOCK), Sectors(BLOCK));
    let small = Limits::new(Sectors(CAPACITY), Sectors(1), Sectors(BLOCK));
    let volumes = [own, other, small];
    assert!(volumes.iter().all(|limits| limits.validate().is_ok()));
    let request = Request { id: RequestId(1), volume, op, flags };
    admit(|volume| volumes.get(volume.index()), &request)
}

fn admitted(op: Op) -> Result<(), BlkStatus> {
    admitted_by(own_limits(), OWN, op, Flags::NONE)
}

/// A range in sectors; its end may pass every bound.
fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

fn segment(source_volume: VolumeId, source: u64, destination: u64, len: u64) -> CopySegment {
    CopySegment { source_volume, source: range(source, len), destination: Sector(destination) }
}

fn command(segments: &[CopySegment]) -> CopyCommand {
    CopyCommand { segments: SmallVec::from_slice(segments) }
}

fn copy(segments: &[CopySegment]) -> Op {
    Op::Copy(command(segments))
}

/// `count` segments of `blocks` blocks each, none overlapping another.
fn apart(count: u64, blocks: u64) -> Vec<CopySegment> {
    let len = blocks * BLOCK;
    (0..count).map(|index| segment(OWN, index * len, CAPACITY / 2 + index * len, len)).collect()
}

/// What makes an operation of a range.
type RangeOp = fn(SectorRange) -> Op;

#[test]
fn a_range_is_aligned_not_empty_and_within_the_volume() {
    let last_aligned = u64::MAX - (BLOCK - 1);
    let table = [
        (0, BLOCK, Ok(())),
        (CAPACITY - BLOCK, BLOCK, Ok(())),
        (0, 0, Err(BlkStatus::Inval)),
        (CAPACITY, 0, Err(BlkStatus::Inval)),
        (1, BLOCK, Err(BlkStatus::Inval)),
        (0, 1, Err(BlkStatus::Inval)),
        (0, BLOCK + 1, Err(BlkStatus::Inval)),
        (CAPACITY - BLOCK, 2 * BLOCK, Err(BlkStatus::OutOfRange)),
        (CAPACITY, BLOCK, Err(BlkStatus::OutOfRange)),
        (last_aligned, BLOCK, Err(BlkStatus::OutOfRange)),
        (last_aligned, last_aligned, Err(BlkStatus::OutOfRange)),
        (BLOCK, last_aligned, Err(BlkStatus::OutOfRange)),
    ];
    let ops: [RangeOp; 4] = [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes];
    for (start, len, expected) in table {
        for op in ops {
            let op = op(range(start, len));
            assert_eq!(admitted(op.clone()), expected, "{op:?}");
        }
    }
}

#[test]
fn reads_and_writes_have_a_longest_length_and_discards_have_not() {
    let most = range(0, own_limits().max_io.0);
    let more = range(0, most.len.0 + BLOCK);
    assert_eq!(admitted(Op::Read(most)), Ok(()));
    assert_eq!(admitted(Op::Write(most)), Ok(()));
    assert_eq!(admitted(Op::Read(more)), Err(BlkStatus::Inval));
    assert_eq!(admitted(Op::Write(more)), Err(BlkStatus::Inval));
    assert_eq!(admitted(Op::Discard(range(0, CAPACITY))), Ok(()));
    assert_eq!(admitted(Op::WriteZeroes(range(0, CAPACITY))), Ok(()));
}

/// One operation of each kind, all in order, with whether it changes the volume.
fn every_op() -> [(Op, bool); 9] {
    let block = range(0, BLOCK);
    [
        (Op::Read(block), false),
        (Op::Write(block), true),
        (Op::Flush, false),
        (Op::Discard(block), true),
        (Op::WriteZeroes(block), true),
        (copy(&apart(1, 1)), true),
        (Op::ZoneMgmt { zone: Sector(0), action: ZoneAction::Reset }, true),
        (Op::ZoneResetAll, true),
        (Op::ReportZones { from: Sector(0), max: 1 }, false),
    ]
}

#[test]
fn a_read_only_volume_takes_what_changes_nothing() {
    for (op, changes) in every_op() {
        let read_only = Limits { read_only: true, ..own_limits() };
        let expected = if changes { Err(BlkStatus::ReadOnly) } else { Ok(()) };
        assert_eq!(admitted_by(read_only, OWN, op.clone(), Flags::NONE), expected, "{op:?}");
        assert_eq!(admitted(op.clone()), Ok(()), "{op:?}");
    }
    let from_own = copy(&[segment(OWN, 0, 0, BLOCK)]);
    let read_only = Limits { read_only: true, ..own_limits() };
    assert_eq!(admitted_by(read_only, OTHER, from_own, Flags::NONE), Ok(()), "a source may be read-only");
}

#[test]
fn a_volume_that_is_not_there_takes_nothing() {
    for (op, _) in every_op() {
        let verdict = admitted_by(own_limits(), NO_VOLUME, op.clone(), Flags::NONE);
        assert_eq!(verdict, Err(BlkStatus::NoVolume), "{op:?}");
    }
    assert_eq!(admitted(copy(&[segment(NO_VOLUME, 0, 0, BLOCK)])), Err(BlkStatus::NoVolume));
}

#[test]
fn every_mode_but_off_takes_copies() {
    for mode in CopyMode::ALL {
        let own = Limits { copy_mode: mode, ..own_limits() };
        let expected = if mode == CopyMode::Off { Err(BlkStatus::NotSupp) } else { Ok(()) };
        assert_eq!(admitted_by(own, OWN, copy(&apart(1, 1)), Flags::NONE), expected, "{mode:?}");
    }
    let off = Limits { copy_mode: CopyMode::Off, ..own_limits() };
    let from_own = copy(&[segment(OWN, 0, 0, BLOCK)]);
    assert_eq!(admitted_by(off, OTHER, from_own, Flags::NONE), Ok(()), "the destination's mode decides");
}

#[test]
fn volumes_of_a_copy_have_the_same_logical_block() {
    assert_eq!(admitted(copy(&[segment(OTHER, 0, 0, BLOCK)])), Ok(()));
    assert_eq!(admitted(copy(&[segment(SMALL_BLOCKS, 0, 0, BLOCK)])), Err(BlkStatus::CopyIncompatible));
    let one_of_two = [segment(OTHER, 0, 0, BLOCK), segment(SMALL_BLOCKS, 0, BLOCK, BLOCK)];
    assert_eq!(admitted(copy(&one_of_two)), Err(BlkStatus::CopyIncompatible));
}

#[test]
fn each_limit_of_a_copy_is_taken_and_not_passed() {
    let table = [
        (8, 1, Ok(())),
        (9, 1, Err(BlkStatus::CopyMaxSegments)),
        (1, 16, Ok(())),
        (1, 17, Err(BlkStatus::CopyMaxSegmentBytes)),
        (4, 16, Ok(())),
        (5, 13, Err(BlkStatus::CopyMaxBytes)),
        (0, 0, Err(BlkStatus::Inval)),
    ];
    for (segments, blocks, expected) in table {
        assert_eq!(
            admitted(copy(&apart(segments, blocks))),
            expected,
            "{segments} segments of {blocks} blocks"
        );
    }
    let one_block_too_much = [apart(4, 16), vec![segment(OTHER, 0, CAPACITY - BLOCK, BLOCK)]].concat();
    assert_eq!(admitted(copy(&one_block_too_much)), Err(BlkStatus::CopyMaxBytes));
}

#[test]
fn both_ends_of_a_segment_are_aligned_and_within_their_volumes() {
    let far = u64::MAX - (BLOCK - 1);
    let table = [
        (segment(OWN, 0, CAPACITY - BLOCK, BLOCK), Ok(())),
        (segment(OWN, CAPACITY - BLOCK, 0, BLOCK), Ok(())),
        (segment(OTHER, CAPACITY / 2 - BLOCK, 0, BLOCK), Ok(())),
        (segment(OTHER, CAPACITY / 2, 0, BLOCK), Err(BlkStatus::OutOfRange)),
        (segment(OTHER, 0, CAPACITY / 2, BLOCK), Ok(())),
        (segment(OWN, CAPACITY - BLOCK, 0, 2 * BLOCK), Err(BlkStatus::OutOfRange)),
        (segment(OWN, 0, CAPACITY - BLOCK, 2 * BLOCK), Err(BlkStatus::OutOfRange)),
        (segment(OWN, far, 0, BLOCK), Err(BlkStatus::OutOfRange)),
        (segment(OWN, 0, far, BLOCK), Err(BlkStatus::OutOfRange)),
        (segment(OWN, 0, 2 * BLOCK, 0), Err(BlkStatus::Inval)),
        (segment(OWN, 1, 2 * BLOCK, BLOCK), Err(BlkStatus::Inval)),
        (segment(OWN, 0, 2 * BLOCK + 1, BLOCK), Err(BlkStatus::Inval)),
        (segment(OWN, 0, 2 * BLOCK, BLOCK - 1), Err(BlkStatus::Inval)),
        (segment(OWN, 0, 0, u64::MAX), Err(BlkStatus::CopyMaxSegmentBytes)),
    ];
    for (segment, expected) in table {
        assert_eq!(admitted(copy(&[segment])), expected, "{segment:?}");
        let good = self::segment(OTHER, 0, 512 * BLOCK, BLOCK);
        assert_eq!(admitted(copy(&[good, segment])), expected, "behind another: {segment:?}");
    }
}

/// The relations of two intervals, by Allen's names: that of `[start, end)` to `[8, 16)`, and whether the two
/// have something in common.
const RELATIONS: [(&str, u64, u64, bool); 13] = [
    ("before", 2, 6, false),
    ("meets", 4, 8, false),
    ("overlaps", 6, 12, true),
    ("starts", 8, 12, true),
    ("during", 10, 14, true),
    ("finishes", 12, 16, true),
    ("equals", 8, 16, true),
    ("finished by", 6, 16, true),
    ("contains", 6, 18, true),
    ("started by", 8, 18, true),
    ("overlapped by", 12, 18, true),
    ("met by", 16, 20, false),
    ("after", 18, 20, false),
];

#[test]
fn the_table_has_each_relation_once() {
    let relation = |start: u64, end: u64| [start.cmp(&8), start.cmp(&16), end.cmp(&8), end.cmp(&16)];
    let different: BTreeSet<_> = RELATIONS.iter().map(|&(_, start, end, _)| relation(start, end)).collect();
    assert_eq!(different.len(), 13);
}

#[test]
fn each_relation_is_taken_or_refused_in_each_role() {
    // Where nothing else of a command is.
    let away = |index: u64| (100 + 50 * index) * BLOCK;
    for (name, start, end, common) in RELATIONS {
        let (one, len) = (start * BLOCK, (end - start) * BLOCK);
        let (two, two_len) = (8 * BLOCK, 8 * BLOCK);
        let verdict = |segments: &[CopySegment], overlap: bool| {
            let op = copy(segments);
            let refused = if overlap { Err(BlkStatus::CopyOverlap) } else { Ok(()) };
            let what = format!("{name}: {segments:?}");
            assert_eq!(overlaps(OWN, &command(segments)), overlap, "{what}");
            assert_eq!(admitted(op.clone()), refused, "{what}");
            assert_eq!(admitted_by(own_limits(), OWN, op, Flags::MAY_OVERLAP), Ok(()), "{what}");
        };
        for other_way in [false, true] {
            let both = |first, second| {
                if other_way { [second, first] } else { [first, second] }
            };
            let destinations = both(segment(OWN, away(0), one, len), segment(OWN, away(1), two, two_len));
            verdict(&destinations, common);
            let from_other = destinations.map(|segment| CopySegment { source_volume: OTHER, ..segment });
            verdict(&from_other, common);

            let source_and_destination =
                both(segment(OWN, one, away(0), len), segment(OWN, away(1), two, two_len));
            verdict(&source_and_destination, common);
            let on_other_volume =
                both(segment(OTHER, one, away(0), len), segment(OWN, away(1), two, two_len));
            verdict(&on_other_volume, false);

            let sources = both(segment(OWN, one, away(0), len), segment(OWN, two, away(1), two_len));
            verdict(&sources, false);
        }
    }
}

#[test]
fn a_segment_may_not_overlap_itself() {
    let len = 8 * BLOCK;
    for (destination, overlap) in
        [(0, true), (BLOCK, true), (len - BLOCK, true), (len, false), (len + BLOCK, false)]
    {
        for (source, destination) in [(0, destination), (destination, 0)] {
            let refused = if overlap { Err(BlkStatus::CopyOverlap) } else { Ok(()) };
            assert_eq!(admitted(copy(&[segment(OWN, source, destination, len)])), refused, "{destination}");
            assert_eq!(admitted(copy(&[segment(OTHER, source, destination, len)])), Ok(()), "{destination}");
        }
    }
}

/// What `overlaps` means, sector by sector.
fn overlaps_by_sector(command: &CopyCommand) -> bool {
    let sectors = |range: SectorRange| range.start.0..range.end().0;
    let mut written = BTreeSet::new();
    let mut twice = command.segments.iter().flat_map(|segment| sectors(segment.destination_range()));
    if !twice.all(|sector| written.insert(sector)) {
        return true;
    }
    let on_own = command.segments.iter().filter(|segment| segment.source_volume == OWN);
    on_own.flat_map(|segment| sectors(segment.source)).any(|sector| written.contains(&sector))
}

/// Up to eight segments, crowded or not.
fn segments() -> impl Strategy<Value = Vec<CopySegment>> {
    (1..400u64, 1..12u64).prop_flat_map(|(space, longest)| {
        let one = (0..4u8, 0..space, 0..space, 1..=longest).prop_map(|(volume, source, destination, len)| {
            segment(if volume == 0 { OTHER } else { OWN }, source, destination, len)
        });
        prop::collection::vec(one, 1..=8)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn overlap_is_what_it_is_sector_by_sector(segments in segments()) {
        let command = command(&segments);
        prop_assert_eq!(overlaps(OWN, &command), overlaps_by_sector(&command));
    }

    #[test]
    fn a_copy_is_refused_for_overlap_alone_when_all_else_is_well(segments in segments()) {
        let in_blocks: Vec<_> = segments
            .iter()
            .map(|one| {
                let len = one.source.len.0 * BLOCK;
                segment(one.source_volume, one.source.start.0 * BLOCK, one.destination.0 * BLOCK, len)
            })
            .collect();
        let own = Limits { copy_max_bytes: Bytes::mib(1), ..own_limits() };
        let overlap = overlaps_by_sector(&command(&segments));
        let expected = if overlap { Err(BlkStatus::CopyOverlap) } else { Ok(()) };
        prop_assert_eq!(admitted_by(own.clone(), OWN, copy(&in_blocks), Flags::NONE), expected);
        prop_assert_eq!(admitted_by(own, OWN, copy(&in_blocks), Flags::MAY_OVERLAP), Ok(()));
    }

    #[test]
    fn a_range_is_judged_without_overflow(
        start in prop_oneof![0..4 * CAPACITY, any::<u64>(), u64::MAX - 64..=u64::MAX],
        len in prop_oneof![0..300u64, 0..2 * CAPACITY, any::<u64>(), u64::MAX - 64..=u64::MAX],
    ) {
        let aligned = len != 0 && start.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        let within = u128::from(start) + u128::from(len) <= u128::from(CAPACITY);
        let expected = match (aligned, within) {
            (false, _) => Err(BlkStatus::Inval),
            (true, false) => Err(BlkStatus::OutOfRange),
            (true, true) => Ok(()),
        };
        prop_assert_eq!(admitted(Op::Discard(range(start, len))), expected);
        let short = len <= own_limits().max_io.0;
        let io = expected.and(if short { Ok(()) } else { Err(BlkStatus::Inval) });
        prop_assert_eq!(admitted(Op::Read(range(start, len))), io);
    }
}

/// A change of limits.
type Change = fn(&mut Limits);

fn assert_refused(table: &[(Change, LimitsError)]) {
    for (change, error) in table {
        let mut limits = own_limits();
        change(&mut limits);
        assert_eq!(limits.validate(), Err(error.clone()));
    }
}

#[test]
fn the_largest_limits_are_valid() {
    let largest = Limits {
        copy_max_segments: SEGMENTS_MAX,
        copy_max_segment_bytes: Bytes(SEGMENT_BLOCKS_MAX * 4096),
        map_block: MAP_BLOCK_MAX.whole_sectors(),
        ..own_limits()
    };
    assert_eq!(largest.validate(), Ok(()));
}

#[test]
fn blocks_and_sizes_that_could_never_work_are_refused() {
    assert_refused(&[
        (|limits| limits.logical_block = Sectors(0), LimitsError::LogicalBlock(0)),
        (|limits| limits.logical_block = Sectors(3), LimitsError::LogicalBlock(1536)),
        (|limits| limits.logical_block = Sectors(16), LimitsError::LogicalBlock(8192)),
        (|limits| limits.map_block = Sectors(4), LimitsError::MapBlock(2048)),
        (|limits| limits.map_block = Sectors(24), LimitsError::MapBlock(12_288)),
        (|limits| limits.map_block = Sectors(256), LimitsError::MapBlock(131_072)),
        (|limits| limits.capacity = Sectors(0), LimitsError::Capacity(0, 4096)),
        (|limits| limits.capacity = Sectors(12), LimitsError::Capacity(6144, 4096)),
    ]);
}

#[test]
fn copy_limits_that_could_never_work_are_refused() {
    let bytes = |bytes| LimitsError::CopyBytes("copy-max-bytes", bytes);
    let segment = |bytes| LimitsError::CopyBytes("copy-max-segment-bytes", bytes);
    assert_refused(&[
        (|limits| limits.copy_max_bytes = Bytes(0), bytes(0)),
        (|limits| limits.copy_max_bytes = Bytes(512), bytes(512)),
        (|limits| limits.copy_max_segment_bytes = Bytes(0), segment(0)),
        (|limits| limits.copy_max_segment_bytes = Bytes(6144), segment(6144)),
        (
            |limits| limits.copy_max_segment_bytes = Bytes(65_536 * 4096),
            LimitsError::SegmentTooLong(65_536 * 4096, 65_535 * 4096),
        ),
        (|limits| limits.copy_max_segments = 0, LimitsError::Segments(0)),
        (|limits| limits.copy_max_segments = 257, LimitsError::Segments(257)),
    ]);
}
