//! What is drawn once for a whole run: the shape of the pool, the mix of operations, what goes wrong how often.

use super::prng::{Prng, Ratio};
use emulation::fault::FaultAction;
use emulation::mapped::{Cache, MappedConfig};
use emulation::zone::ZoneGeometry;
use emulation::{Bytes, CopyMode, Limits, Sectors};

/// The device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Volumes as maps, over one store.
    Mapped,
    /// The same, most of them with zones.
    Zoned,
    /// One volume written in place.
    Identity,
}

/// Weights of the operations.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Flushes.
    pub flush: u64,
    /// Discards.
    pub discard: u64,
    /// Write zeroes.
    pub write_zeroes: u64,
    /// Copies.
    pub copy: u64,
    /// What a volume without zones refuses.
    pub zone: u64,
}

/// Weights of the shapes of copies.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    /// Whole map blocks.
    pub whole: u64,
    /// Congruent, with a head and a tail.
    pub head_tail: u64,
    /// Incongruent, and mixed with others.
    pub incongruent: u64,
    /// Two ranges in each of the thirteen relations, many to be refused.
    pub related: u64,
    /// Ranges that overlap at random, permitted.
    pub overlapping: u64,
    /// To be refused for another reason.
    pub refused: u64,
}

/// Weights of what happens next.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    /// A request begins.
    pub start: u64,
    /// A live plan's work goes on.
    pub step: u64,
    /// A plan that is executed goes back.
    pub finish: u64,
    /// A plan goes back with a failure.
    pub fail: u64,
    /// A request is aborted.
    pub abort: u64,
    /// The device is woken.
    pub wake: u64,
    /// A volume gets new limits.
    pub limits: u64,
    /// A volume is added.
    pub add: u64,
    /// A volume is removed.
    pub remove: u64,
    /// What is durable is looked at.
    pub probe: u64,
    /// A zone fails.
    pub fail_zone: u64,
    /// All zones are looked at.
    pub report: u64,
    /// The power of a volume fails.
    pub power: u64,
    /// A rule of faults is added or removed.
    pub faults: u64,
}

/// How much of a plan's work one event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// All of it.
    Plan,
    /// A step.
    Step,
    /// A part of a step.
    Part,
}

/// Everything that is drawn once for a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of it all.
    pub seed: u64,
    /// The device.
    pub stack: Stack,
    /// Sectors of a logical block.
    pub logical_block: u64,
    /// Sectors of a map block.
    pub map_block: u64,
    /// Zones of the pool's volumes that have some.
    pub zones: ZoneGeometry,
    /// Volumes at the start.
    pub volumes: usize,
    /// The most volumes.
    pub volumes_max: usize,
    /// Map blocks of a volume: at least, at most.
    pub blocks: (u64, u64),
    /// A volume may have another logical block than the rest.
    pub odd_volumes: bool,
    /// Map blocks that may be mapped and held back.
    pub cap: u64,
    /// Map blocks of the store.
    pub physical: u64,
    /// Map blocks held back at most; `None`: no volatile cache.
    pub held_max: Option<u64>,
    /// The store is told of blocks given back.
    pub trim: bool,
    /// Records that the redo log has room for.
    pub log_records: Option<usize>,
    /// Operations to begin.
    pub operations: u64,
    /// Requests that live at once, at most.
    pub live_max: usize,
    /// What is asked for.
    pub ops: Operations,
    /// What kinds of copies.
    pub copies: Copies,
    /// The most segments of most copies.
    pub segments: u64,
    /// What happens.
    pub events: Events,
    /// Work done by an event.
    pub grain: Grain,
    /// Operations aimed at a live one.
    pub aimed: Ratio,
    /// Operations in whole map blocks.
    pub aligned: Ratio,
    /// Changes with FUA.
    pub fua: Ratio,
    /// Write zeroes with NOUNMAP.
    pub nounmap: Ratio,
    /// Copies with FAST_ONLY.
    pub fast_only: Ratio,
    /// New limits that are narrow.
    pub narrow: Ratio,
    /// Weights of the modes of copies, in the order of [`CopyMode::ALL`].
    pub modes: [u64; 4],
    /// Host crashes, of a thousand events.
    pub crash: Ratio,
    /// Server deaths.
    pub kill: Ratio,
    /// Every so many events all invariants are checked.
    pub check_every: u64,
    /// Reads and writes of at most so many sectors.
    pub io_max: Option<u64>,
    /// Two changes of a part of one block do not live at once.
    pub apart: bool,
    /// Only contents and answers are looked at, not who names which block.
    pub blind: bool,
    /// Volumes take time.
    pub timed: bool,
    /// All zones are looked at after each event.
    pub watch: bool,
    /// The host crashes when this sync or commit, counted from 1, begins.
    pub freeze: Option<Freeze>,
    /// Strikes a part of all requests of every volume.
    pub lie: Option<FaultAction>,
}

/// A step at which the storage answers no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// A data sync.
    Sync(u64),
    /// A metadata commit.
    Commit(u64),
}

impl Options {
    /// The options of a seed.
    pub fn draw(seed: u64, stack: Stack) -> Self {
        let mut prng = Prng::new(seed);
        let logical_block = prng.pick(&[1, 1, 1, 1, 2, 8, 8]);
        let factor = prng.pick(&[1, 2, 4, 8, 8, 8, 16, 128]);
        let map_block = (logical_block * factor).min(128);
        let most = (8192 / map_block).clamp(64, 4096);
        let most = if prng.one_in(8) { most } else { most.min(512) };
        let high = prng.range(16, most);
        let blocks = (prng.range(16, high), high);
        let volumes = prng.range(1, 3) as usize;
        let live_max = prng.pick(&[1, 4, 8, 16, 24]);
        let all = high * (volumes as u64 + 1);
        let cap = if prng.one_in(3) { prng.range(8, all) } else { all };
        let held_max = match prng.below(4) {
            0 => Some(prng.range(1, 16)),
            1 => Some(prng.range(1, cap)),
            _ => None,
        };
        let mut options = Self {
            seed,
            stack,
            logical_block,
            map_block,
            zones: ZoneGeometry::new(Sectors(map_block * (1 << (seed % 5)))),
            volumes,
            volumes_max: volumes + 1,
            blocks,
            odd_volumes: prng.one_in(6),
            cap,
            // Blocks of live plans are beside the cap; a link makes at most 1 MiB of new ones.
            physical: cap + (2048 / map_block) * prng.range(1, 3),
            held_max,
            trim: prng.one_in(2),
            log_records: (held_max.is_some() && prng.one_in(3)).then(|| prng.pick(&[8, 64, 512])),
            operations: prng.range(200, 2000),
            live_max,
            ops: draw_operations(&mut prng),
            copies: draw_copies(&mut prng),
            segments: prng.pick(&[1, 2, 4, 8, 32, 128]),
            events: draw_events(&mut prng),
            grain: prng.pick(&[Grain::Plan, Grain::Plan, Grain::Step, Grain::Part]),
            aimed: Ratio::new(prng.range(50, 90), 100),
            aligned: Ratio::new(prng.range(0, 10), 10),
            fua: draw_ratio(&mut prng, 8),
            nounmap: draw_ratio(&mut prng, 2),
            fast_only: draw_ratio(&mut prng, 6),
            narrow: Ratio::new(prng.range(0, 4), 8),
            modes: prng.swarm([6, 3, 3, 1]),
            crash: draw_ratio(&mut prng, 400),
            kill: draw_ratio(&mut prng, 800),
            check_every: if prng.one_in(12) { 1 } else { prng.pick(&[32, 128, 512, 2048]) },
            io_max: None,
            apart: false,
            blind: false,
            timed: prng.one_in(3),
            watch: false,
            freeze: None,
            lie: None,
        };
        // From a sequence of their own, so that the other draws of a seed stay what they were.
        let mut prng = Prng::new(super::prng::mix(seed ^ 0xfa17));
        [options.events.power, options.events.faults] = prng.swarm([1, 3]);
        options.narrow_to_stack();
        options
    }

    /// Takes away what the stack does not have, and adds what it has.
    fn narrow_to_stack(&mut self) {
        if self.stack == Stack::Zoned {
            let zone = self.zones.size.0;
            let most = (self.blocks.1 * self.map_block / zone).clamp(4, 12);
            self.blocks = (2 * zone / self.map_block, most * zone / self.map_block);
            let all = self.blocks.1 * (self.volumes as u64 + 1);
            self.cap = if self.cap < all && self.seed.is_multiple_of(3) { self.cap } else { all };
            self.physical = self.cap + (2048 / self.map_block) * 2;
            // Actions on zones that wait for room in the log, and copies made of inner requests, have tests of their own.
            (self.log_records, self.timed, self.modes[2]) = (None, false, 0);
            self.ops = Operations { discard: self.ops.discard.min(1), zone: 12, ..self.ops };
            (self.events.report, self.events.fail_zone) = (20, u64::from(self.seed.is_multiple_of(3)));
        }
        if self.stack == Stack::Identity {
            (self.volumes, self.volumes_max, self.odd_volumes) = (1, 1, false);
            (self.cap, self.physical) = (self.blocks.1, self.blocks.1);
            self.log_records = None;
        }
        if self.held_max.is_none() {
            (self.crash, self.kill) = (Ratio::NEVER, Ratio::NEVER);
        }
    }

    /// The configuration of the map layer.
    pub fn mapped_config(&self) -> MappedConfig {
        let sectors = |blocks: u64| Sectors(blocks * self.map_block);
        MappedConfig {
            map_block: Sectors(self.map_block),
            cap: sectors(self.cap),
            physical: sectors(self.physical),
            cache: match self.held_max {
                None => Cache::None,
                Some(blocks) => Cache::Volatile { held_max: sectors(blocks) },
            },
            trim: self.trim,
        }
    }

    /// True when the volumes together may be larger than what may be mapped.
    pub fn may_lack_space(&self) -> bool {
        self.cap < self.blocks.1 * self.volumes_max as u64
    }

    /// The sectors of the store.
    pub fn store_sectors(&self) -> u64 {
        self.physical * self.map_block
    }

    /// The limits of a new volume.
    pub fn draw_volume(&self, prng: &mut Prng) -> Limits {
        let mut logical_block = self.logical_block;
        if self.odd_volumes && prng.one_in(3) {
            logical_block = if logical_block == 1 { 2.min(self.map_block) } else { 1 };
        }
        let capacity = prng.range(self.blocks.0, self.blocks.1) * self.map_block;
        let mut limits = Limits::new(Sectors(capacity), Sectors(logical_block), Sectors(self.map_block));
        if self.stack == Stack::Zoned && !prng.one_in(4) {
            limits.capacity = Sectors(capacity - capacity % self.zones.size.0);
            limits.zones = Some(self.draw_zones(prng, &limits));
        }
        self.draw_limits(prng, &limits)
    }

    /// How a new volume is divided.
    fn draw_zones(&self, prng: &mut Prng, limits: &Limits) -> ZoneGeometry {
        let (size, block) = (self.zones.size, limits.logical_block.0);
        let zones = limits.capacity.0 / size.0;
        let blocks = size.0 / block;
        let capacity = if prng.one_in(2) { blocks } else { prng.range(blocks.div_ceil(2), blocks) } * block;
        let max_active = if prng.one_in(2) { 0 } else { prng.range(1, zones) as u32 };
        let max_open = if max_active == 0 {
            prng.range(0, zones) as u32
        } else {
            prng.range(1, max_active.into()) as u32
        };
        ZoneGeometry {
            size,
            capacity: Sectors(capacity),
            conventional: prng.pick(&[0, 0, 1, 2]).min(zones as u32 - 1),
            max_open: if prng.one_in(3) { 0 } else { max_open },
            max_active,
            max_append: Sectors(prng.range(1, capacity / block) * block),
        }
    }

    /// New limits for a volume; its geometry stays.
    pub fn draw_limits(&self, prng: &mut Prng, old: &Limits) -> Limits {
        let block = old.logical_block.0;
        let blocks = |count: u64| Sectors(count * block).bytes();
        let mut limits = Limits::new(old.capacity, old.logical_block, old.map_block);
        limits.zones = old.zones;
        if let Some(mode) = prng.weighted(&self.modes) {
            limits.copy_mode = CopyMode::ALL[mode];
        }
        limits.max_io = Sectors((block * prng.pick(&[16, 128, 256, 2048])).min(2048));
        if let Some(most) = self.io_max {
            limits.max_io = Sectors(most);
        }
        limits.read_only = prng.one_in(24);
        if prng.chance(self.narrow) {
            let all = old.capacity.0 / block;
            limits.copy_max_segments = prng.pick(&[1, 2, 5, 40, 256]);
            limits.copy_max_segment_bytes = blocks(prng.skewed(all.min(65_535)));
            limits.copy_max_bytes = blocks(prng.skewed(2 * all));
        }
        if limits.copy_max_segment_bytes > blocks(65_535) {
            limits.copy_max_segment_bytes = Bytes::mib(16);
        }
        limits
    }
}

fn draw_ratio(prng: &mut Prng, of: u64) -> Ratio {
    if prng.one_in(2) { Ratio::NEVER } else { Ratio::new(1, of) }
}

fn draw_operations(prng: &mut Prng) -> Operations {
    let [read, write, flush, discard, write_zeroes, copy, zone] = prng.swarm([30, 30, 2, 6, 6, 30, 1]);
    // Something always changes, and something can always be asked for.
    let write = if write + discard + write_zeroes + copy == 0 { 1 } else { write };
    Operations { read, write, flush, discard, write_zeroes, copy, zone: zone.min(1) }
}

fn draw_copies(prng: &mut Prng) -> Copies {
    let [whole, head_tail, incongruent, related, overlapping, refused] = prng.swarm([10, 8, 8, 5, 4, 4]);
    Copies { whole: whole + 1, head_tail, incongruent, related, overlapping, refused }
}

fn draw_events(prng: &mut Prng) -> Events {
    let [fail, abort, wake, limits, add, remove] = prng.swarm([4, 6, 4, 4, 1, 1]);
    Events {
        start: prng.pick(&[60, 100, 200]),
        step: prng.pick(&[60, 100, 200]),
        finish: prng.pick(&[40, 100, 200]),
        fail,
        abort,
        wake,
        limits,
        add,
        remove,
        probe: 2,
        fail_zone: 0,
        report: 0,
        power: 0,
        faults: 0,
    }
}
