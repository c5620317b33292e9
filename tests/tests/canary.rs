//! Is the simulation worth anything? Each row is a rule and a device that breaks it. The simulation has to find
//! every one of them within a few seeds from that of the row on, to say what the row says, and to pass the same
//! seed without the mistake. `--nocapture` shows the whole table.
//!
//! Built with `--features canary` only.

use emulation::emulated::Emulated;
use emulation::mapped::{Canary, Mapped};
use emulation::zone::ZoneGeometry;
use emulation::{BlockDevice, Sectors};
use tests::sim::options::{Copies, Grain, Operations, Options, Stack};
use tests::sim::prng::Ratio;
use tests::sim::relation::{Pair, Relation};
use tests::sim::run::{self, Image, Rig, run};
use tests::sim::wrong::{self, Wrong};
use zoned::Zoned;

/// Seeds tried from that of the row on.
const SEEDS_MAX: u64 = 40;

enum Mistake {
    Outside(Wrong),
    Inside(Canary),
    /// The same with zones.
    Around(Wrong),
    Zones(zoned::Canary),
}

struct Row {
    /// The rule or clause.
    rule: &'static str,
    mistake: Mistake,
    /// What the workload is narrowed to.
    tune: fn(&mut Options),
    /// The first seed to try.
    seed: u64,
    /// What the simulation has to say of it.
    says: &'static str,
}

const fn row(
    rule: &'static str,
    mistake: Mistake,
    tune: fn(&mut Options),
    seed: u64,
    says: &'static str,
) -> Row {
    Row { rule, mistake, tune, seed, says }
}

use Mistake::{Around, Inside, Outside, Zones};
use zoned::Canary as Zone;

/// One test for each mistake, with a row for each way in which it has to be found.
macro_rules! canaries {
    ($($name:ident: $($rule:literal, $mistake:expr, $tune:ident, $seed:literal, $says:literal);+;)+) => {
        $(#[test]
        fn $name() {
            all_found(&[$(row($rule, $mistake, $tune, $seed, $says)),+]);
        })+
    };
}

#[rustfmt::skip]
canaries! {
    rewrite_shared:
        "(a) a block is written by one plan, and not while it is named", Inside(Canary::RewriteShared), anything, 1, "which a map names";
        "(a) the same, seen by contents alone", Inside(Canary::RewriteShared), copies_blind, 1, "allowed";
    read_unpinned:
        "(b) what is read is not used again", Inside(Canary::ReadUnpinned), reads, 1, "another live plan names";
        "(b) the same, seen by contents alone", Inside(Canary::ReadUnpinned), reads_blind, 1, "allowed";
    copy_unpinned:
        "(b) what is copied is not used again", Inside(Canary::CopyUnpinned), memcpy, 1, "another live plan names";
        "(b) the same, seen by contents alone", Inside(Canary::CopyUnpinned), memcpy_blind, 1, "allowed";
    freed_before_durable:
        "(b) what is durable is not used again", Inside(Canary::FreedBeforeDurable), volatile, 1, "the durable image names";
        "(b) the same, seen by crashes alone", Inside(Canary::FreedBeforeDurable), volatile_blind, 10, "after a crash";
    reference_leak:
        "(b) references equal the map", Inside(Canary::ReferenceLeak), copies, 1, "counted";
    lost_update:
        "(c) part of a block against another part", Inside(Canary::LostUpdate), parts, 1, "allowed";
        "(c) part of a block against a whole write", Inside(Canary::LostUpdate), parts_and_writes, 1, "allowed";
        "(c) part of a block against a discard", Inside(Canary::LostUpdate), parts_and_discards, 1, "allowed";
        "(c) part of a block against a remap", Inside(Canary::LostUpdate), parts_and_remaps, 5, "allowed";
    rest_lost:
        "(c) the rest of a block is kept", Outside(Wrong::RestLost), anything, 1, "allowed";
    flush_ignored:
        "(e) a flush makes durable", Outside(Wrong::FlushIgnored), volatile, 1, "after a crash";
    sync_skipped:
        "(e) no entry without its data", Outside(Wrong::SyncSkipped), volatile, 1, "before its data is durable";
    commit_first:
        "(e) no entry before its data", Outside(Wrong::CommitFirst), volatile, 1, "before its data is durable";
    own_work_lost:
        "(f) the device's own commits happen", Outside(Wrong::OwnWorkLost), volatile, 1, "for ever";
    space_denied:
        "(f) room that is there is given", Outside(Wrong::SpaceDenied), plain, 2, "failed for no reason";
        "(f) an overwrite never lacks space", Outside(Wrong::SpaceDenied), full, 1, "failed for no reason";
    answered_twice:
        "(g) a request is answered once", Outside(Wrong::AnsweredTwice), anything, 1, "named twice";
    answer_lost:
        "(g) every request is answered", Outside(Wrong::AnswerLost), patient, 1, "for ever";
    removal_forgets:
        "(g) a removal answers what waits", Outside(Wrong::RemovalForgets), crowd, 1, "is gone";
    abort_ignored:
        "an abort ends what waits", Outside(Wrong::AbortIgnored), crowd, 1, "abort";
    log_dropped_early:
        "redo records are kept until durable", Outside(Wrong::LogDroppedEarly), volatile, 1, "were dropped";
    log_not_replayed:
        "after a server's death the log is replayed", Outside(Wrong::LogNotReplayed), killed, 1, "allowed";
    log_cut:
        "and the log to its last record", Outside(Wrong::LogCut), killed, 1, "allowed";
    replay_is_durable:
        "(b) what is durable is not used after a replay either", Outside(Wrong::ReplayIsDurable), killed, 1, "the durable image names";
        "(e) what was replayed is made durable by a flush", Outside(Wrong::ReplayIsDurable), killed_blind, 1, "after a crash";
    fua_ignored:
        "FUA is durable when answered", Outside(Wrong::FuaIgnored), volatile, 1, "durable image";
    swapped:
        "a copy goes from source to destination", Outside(Wrong::Swapped), copies, 1, "allowed";
        "the same by moving", Outside(Wrong::Swapped), memcpy, 1, "allowed";
        "the same through the bounce buffer", Outside(Wrong::Swapped), emulated, 1, "allowed";
        "an overlapped block is old or contributing", Outside(Wrong::Swapped), overlapping, 1, "allowed";
    not_advancing:
        "each segment has its own place", Outside(Wrong::DestinationStuck), copies, 1, "allowed";
    head_lost:
        "the head of a segment is copied", Outside(Wrong::HeadLost), copies, 1, "allowed";
    tail_lost:
        "the tail of a segment is copied", Outside(Wrong::TailLost), copies, 1, "allowed";
    short_success:
        "success means every segment", Outside(Wrong::ShortSuccess), copies, 1, "allowed";
        "success means every byte", Outside(Wrong::ShortCount), anything, 1, "success, and the bytes";
    failed_index:
        "the first failed segment is the lowest", Outside(Wrong::FailedIndex), anything, 2, "the failed segment is";
    long_prefix:
        "the finished prefix ends in it", Outside(Wrong::LongPrefix), anything, 2, "the failed segment is not";
    fast_only_ignored:
        "FAST_ONLY moves no bytes", Outside(Wrong::FastOnlyIgnored), copies, 1, "had to be refused";
    mode_ignored:
        "the mode of a copy is kept", Outside(Wrong::ModeIgnored), moved, 6, "was never to remap";
    remap_uncounted:
        "the ledger counts what was copied", Outside(Wrong::RemapUncounted), copies, 6, "its ledger says";
    limits_stale:
        "limits change live", Outside(Wrong::LimitsStale), anything, 1, "request";
    discard_keeps:
        "a discard gives the blocks back", Outside(Wrong::DiscardKeeps), plain, 1, "discarded blocks are mapped";
    nounmap_ignored:
        "NOUNMAP keeps the blocks", Outside(Wrong::NounmapIgnored), plain, 1, "blocks are gone";
    discard_ignored:
        "discarded sectors read as zeroes", Outside(Wrong::DiscardIgnored), plain, 1, "allowed";
}

#[rustfmt::skip]
canaries! {
    zone_action_ignored:
        "7.1 actions change the condition", Around(Wrong::FinishIgnored), zones, 1, "is said to be";
    off_pointer:
        "7.2 a write begins at the pointer", Zones(Zone::OffPointer), zones, 1, "had to be refused";
    beyond_capacity:
        "7.2 a write ends within the capacity", Zones(Zone::BeyondCapacity), zones, 1, "had to be refused";
    append_misplaced:
        "7.3 an append is told where it went", Zones(Zone::AppendMisplaced), zone_writes, 1, "it was appended at";
        "7.15 so is an appended copy", Zones(Zone::AppendMisplaced), zone_copies, 1, "it was appended at";
    open_limit_ignored:
        "7.4 the open limit holds", Zones(Zone::OpenLimitIgnored), zone_writes, 1, "is said to be";
    active_limit_ignored:
        "7.4 the active limit holds", Zones(Zone::ActiveLimitIgnored), zone_writes, 1, "had to be refused";
    closes_newest:
        "7.4 the zone that was opened first gives way", Zones(Zone::ClosesNewest), zone_writes, 1, "is said to be";
    zone_status_lost:
        "7.5 each refusal has its reason", Around(Wrong::ZoneStatusLost), zones, 1, "for another reason";
    pointer_kept:
        "7.6 a failed write gives the pointer back", Zones(Zone::PointerKept), zone_writes, 1, "is said to be";
    given_back_under:
        "7.6 and not under what stands", Zones(Zone::GivenBackUnder), zone_writes, 1, "is said to be";
    offline_readable:
        "7.7 an offline zone is not read", Zones(Zone::OfflineReadable), failing_zones, 1, "had to be refused";
    stale_write:
        "7.8 a write of another life fails", Zones(Zone::StaleWrite), zone_writes, 1, "another life";
    reset_keeps_data:
        "7.9 the contents go before the pointer", Zones(Zone::ResetKeepsData), zones_blind, 1, "allowed";
    reset_unawaited:
        "7.9 changes wait for a reset", Zones(Zone::ResetUnawaited), zone_writes, 1, "resetting";
    reset_all_short:
        "7.10 a reset of all resets all", Around(Wrong::ResetAllShort), zones, 1, "is said to be";
    reset_keeps_blocks:
        "7.11 a reset gives the blocks back", Zones(Zone::ResetKeepsBlocks), zone_writes, 1, "are mapped";
    report_short:
        "7.12 a report has every zone", Around(Wrong::ReportShort), zones, 1, "a report of";
    copy_untried:
        "7.13 a copy that does not fit is refused whole", Zones(Zone::CopyUntried), zone_copies, 1, "refused";
    stale_source:
        "7.14 a source that is reset ends the copy", Zones(Zone::StaleSource), zone_copies, 1, "another life";
    zones_not_committed:
        "7.16 a flush makes the pointers durable", Zones(Zone::NotCommitted), zones_crash, 1, "was made durable";
    zones_not_recorded:
        "7.16 after a server's death the zones are there", Zones(Zone::NotRecorded), zones_killed, 1, "replay gives";
    zones_forgotten:
        "7.16 after a crash the durable zones are there", Around(Wrong::ZonesForgotten), zones_crash, 1, "after a crash";
}

fn anything(_: &mut Options) {}

/// Zones of four blocks.
fn zones(options: &mut Options) {
    plain(options);
    options.zones = ZoneGeometry::new(Sectors(32));
    options.ops =
        Operations { read: 30, write: 40, flush: 2, discard: 1, write_zeroes: 5, copy: 10, zone: 15 };
    options.segments = 4;
    options.narrow = Ratio::NEVER;
    options.fast_only = Ratio::NEVER;
    options.modes = [1, 1, 0, 0];
    options.events.fail = 4;
    options.events.fail_zone = 0;
    (options.crash, options.kill) = (Ratio::NEVER, Ratio::NEVER);
    options.watch = true;
}

fn zones_blind(options: &mut Options) {
    zones(options);
    options.blind = true;
}

fn failing_zones(options: &mut Options) {
    zones(options);
    options.events.fail_zone = 4;
}

fn zone_writes(options: &mut Options) {
    zones(options);
    options.ops = Operations { copy: 0, zone: 8, ..options.ops };
}

fn zone_copies(options: &mut Options) {
    zones(options);
    options.ops = Operations { write: 15, copy: 40, ..options.ops };
}

fn zones_crash(options: &mut Options) {
    zones(options);
    options.held_max = Some(32);
    options.fua = Ratio::new(1, 8);
    options.crash = Ratio::new(1, 200);
    options.events.probe = 0;
}

fn zones_killed(options: &mut Options) {
    zones_crash(options);
    (options.crash, options.kill) = (Ratio::new(1, 1000), Ratio::new(1, 200));
}

/// A roomy pool of small blocks without faults.
fn plain(options: &mut Options) {
    (options.logical_block, options.map_block, options.blocks) = (1, 8, (32, 64));
    options.odd_volumes = false;
    options.cap = 64 * options.volumes_max as u64;
    options.physical = options.cap + 1024;
    options.live_max = 16;
    options.ops = Operations { read: 30, write: 30, flush: 1, discard: 5, write_zeroes: 5, copy: 0, zone: 0 };
    options.events.fail = 0;
    options.grain = Grain::Step;
}

fn volatile(options: &mut Options) {
    plain(options);
    options.held_max = Some(32);
    options.ops = Operations { copy: 10, flush: 4, ..options.ops };
    options.fua = Ratio::new(1, 8);
    options.crash = Ratio::new(1, 400);
}

/// The server dies often, and the host at times.
fn killed(options: &mut Options) {
    volatile(options);
    options.kill = Ratio::new(1, 100);
    options.crash = Ratio::new(1, 1000);
}

fn killed_blind(options: &mut Options) {
    killed(options);
    options.crash = Ratio::new(1, 200);
    options.blind = true;
}

fn volatile_blind(options: &mut Options) {
    volatile(options);
    options.blind = true;
}

fn copies(options: &mut Options) {
    plain(options);
    options.ops = Operations { copy: 40, ..options.ops };
    options.copies =
        Copies { whole: 10, head_tail: 10, incongruent: 5, related: 0, overlapping: 0, refused: 0 };
    options.segments = 8;
    options.modes = [1, 0, 0, 0];
    options.fast_only = Ratio::new(1, 8);
    options.narrow = Ratio::NEVER;
}

/// A store that is full before its volumes are.
fn full(options: &mut Options) {
    plain(options);
    options.ops.discard = 0;
    options.ops.write_zeroes = 0;
    options.cap = 20;
    options.physical = 20 + 1024;
    options.aligned = Ratio::new(1, 1);
}

fn copies_blind(options: &mut Options) {
    copies(options);
    options.blind = true;
}

fn memcpy(options: &mut Options) {
    copies(options);
    options.modes = [0, 1, 0, 0];
    options.aligned = Ratio::new(1, 1);
}

fn moved(options: &mut Options) {
    memcpy(options);
    options.fast_only = Ratio::NEVER;
}

fn emulated(options: &mut Options) {
    copies(options);
    options.modes = [0, 0, 1, 0];
}

fn overlapping(options: &mut Options) {
    copies(options);
    options.copies =
        Copies { whole: 0, head_tail: 0, incongruent: 0, related: 0, overlapping: 1, refused: 0 };
}

fn memcpy_blind(options: &mut Options) {
    memcpy(options);
    options.blind = true;
}

fn reads(options: &mut Options) {
    plain(options);
    options.held_max = None;
    options.aligned = Ratio::new(1, 1);
}

fn reads_blind(options: &mut Options) {
    reads(options);
    options.blind = true;
}

/// Many that wait for each other.
fn crowd(options: &mut Options) {
    plain(options);
    options.aligned = Ratio::NEVER;
    options.aimed = Ratio::new(95, 100);
    options.events.abort = 6;
    options.events.add = 4;
    options.events.remove = 2;
}

fn patient(options: &mut Options) {
    crowd(options);
    options.events.abort = 0;
    options.events.remove = 0;
}

fn parts(options: &mut Options) {
    crowd(options);
    options.ops = Operations { read: 10, write: 30, flush: 0, discard: 0, write_zeroes: 0, copy: 0, zone: 0 };
    options.io_max = Some(6);
}

/// Writes of parts of blocks, never two of one block at once, against whole blocks changed by others.
fn parts_apart(options: &mut Options) {
    parts(options);
    options.apart = true;
}

fn parts_and_writes(options: &mut Options) {
    parts_apart(options);
    options.io_max = Some(32);
    options.aligned = Ratio::new(1, 2);
}

fn parts_and_discards(options: &mut Options) {
    parts_apart(options);
    options.ops.discard = 30;
}

fn parts_and_remaps(options: &mut Options) {
    parts_apart(options);
    options.ops.copy = 30;
    options.copies =
        Copies { whole: 1, head_tail: 0, incongruent: 0, related: 0, overlapping: 0, refused: 0 };
    options.modes = [1, 0, 0, 0];
    options.segments = 2;
    options.narrow = Ratio::NEVER;
}

/// Copies of two ranges in every relation.
fn related(options: &mut Options) {
    copies(options);
    options.copies =
        Copies { whole: 0, head_tail: 0, incongruent: 0, related: 1, overlapping: 0, refused: 0 };
    options.ops = Operations { read: 5, write: 5, flush: 0, discard: 0, write_zeroes: 0, copy: 90, zone: 0 };
    options.modes = [1, 1, 0, 0];
    options.fast_only = Ratio::NEVER;
}

fn rig(mistake: &Mistake) -> Rig {
    match *mistake {
        Outside(wrong) => wrong::rig(wrong),
        Inside(canary) => {
            let build = move |options: &Options| -> Box<dyn BlockDevice> {
                Box::new(Emulated::new(Box::new(Mapped::with_canary(options.mapped_config(), canary))))
            };
            Rig { build: Box::new(build), ..Rig::plain() }
        }
        Around(wrong) => wrong::rig(wrong),
        Zones(canary) => {
            let build = move |options: &Options| -> Box<dyn BlockDevice> {
                let map = Box::new(Mapped::new(options.mapped_config()));
                Box::new(Emulated::new(Box::new(Zoned::new(map, false).with_canary(canary))))
            };
            let recover = move |options: &Options, image: &Image| -> Box<dyn BlockDevice> {
                Box::new(Emulated::new(Box::new(run::zones(options, image).with_canary(canary))))
            };
            Rig { build: Box::new(build), recover: Box::new(recover), ..Rig::plain() }
        }
    }
}

/// The seed that finds the mistake, and what was said.
fn find(row: &Row) -> Result<(u64, String), String> {
    for seed in row.seed..row.seed + SEEDS_MAX {
        let stack = match row.mistake {
            Outside(_) | Inside(_) => Stack::Mapped,
            Around(_) | Zones(_) => Stack::Zoned,
        };
        let mut options = Options::draw(seed, stack);
        // No rule here is about time.
        options.timed = false;
        (options.events.power, options.events.faults) = (0, 0);
        (row.tune)(&mut options);
        let Some(failure) = run(&options, &rig(&row.mistake), false).failure else {
            continue;
        };
        if !failure.contains(row.says) {
            return Err(format!("{}: seed {seed} fails, and not as it should: {failure}", row.rule));
        }
        return match run(&options, &Rig::plain(), false).failure {
            None => Ok((seed, failure)),
            Some(failure) => {
                Err(format!("{}: seed {seed} fails without the mistake too: {failure}", row.rule))
            }
        };
    }
    Err(format!("{}: not found by {SEEDS_MAX} seeds from {}", row.rule, row.seed))
}

fn all_found(rows: &[Row]) {
    let mut missed = Vec::new();
    for row in rows {
        let name = match &row.mistake {
            Outside(wrong) => format!("{wrong:?}"),
            Inside(canary) => format!("{canary:?}"),
            Around(wrong) => format!("{wrong:?}"),
            Zones(canary) => format!("{canary:?}"),
        };
        match find(row) {
            Ok((seed, said)) => {
                let line: String = said.lines().next().unwrap_or_default().chars().take(140).collect();
                println!("{:62} {name:36} seed {seed:3}: {line}", row.rule);
            }
            Err(error) => missed.push(format!("{name}: {error}")),
        }
    }
    assert!(missed.is_empty(), "{} of {} mistakes:\n{}", missed.len(), rows.len(), missed.join("\n"));
}

/// Refusal is exact: letting in an overlap is found, relation by relation.
#[test]
fn overlap_accepted() {
    all_found(&relations(true));
}

/// Refusal is exact: refusing what is apart is found, relation by relation.
#[test]
fn overlap_refused() {
    all_found(&relations(false));
}

/// A row for each pair of ranges and each relation that it can have, overlapping or not.
fn relations(overlapping: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for pair in Pair::ALL {
        for relation in Relation::ALL.into_iter().filter(|relation| relation.overlaps() == overlapping) {
            if pair == Pair::Own && !relation.of_equal_lengths() {
                continue;
            }
            rows.push(if overlapping {
                row(
                    "an overlap is refused",
                    Outside(Wrong::Accepts(pair, relation)),
                    related,
                    1,
                    "had to be refused",
                )
            } else {
                row(
                    "what is apart is let in",
                    Outside(Wrong::Refuses(pair, relation)),
                    related,
                    1,
                    "CopyOverlap",
                )
            });
        }
    }
    assert_eq!(rows.len(), if overlapping { 3 + 9 + 9 } else { 4 + 4 + 4 });
    rows
}
