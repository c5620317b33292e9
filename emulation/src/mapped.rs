//! The map layer: volumes as maps from logical to physical blocks of one store.
//!
//! A physical block is written by one plan only, the one that allocated it in `begin`, and never again until it
//! is freed and allocated anew: every write goes to new blocks and `finish` switches the map. So reads and copy
//! sources never wait, and unlocked access cannot race.

use crate::device::{
    BlockDevice, Completion, Control, Cx, IoResult, Link, Next, Out, Plan, PlanId, PortKind, Step, Steps,
    Usage,
};
use crate::limits::{CopyMode, Limits};
use crate::parking::{Parking, Ticket};
use crate::range_map::{Physical, RangeMap};
use crate::redo::{Fill, MapChange, RedoLog};
use crate::request::{Flags, Op, Request, RequestId, VolumeId};
use crate::slots::Slots;
use crate::status::BlkStatus;
use crate::time::Instant;
use crate::units::{Bytes, SectorRange, Sectors};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::ops::Range;

mod chain;
mod claim;
mod flush;
mod link;
mod pins;
mod power;
mod recover;
mod space;
#[cfg(test)]
mod tests;

use chain::{Chain, Waiting};
use claim::BlockClaim;
use flush::Flushes;
use link::Change;
use power::{Links, Was};
pub use recover::ImageError;
use space::{Space, count};

/// The group of the allocator: made on first use, dropped when empty.
const GROUP: Bytes = Bytes::mib(128);

/// What is promised of acknowledged changes before a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Every acknowledged change is durable: the store has no image other than the map.
    None,
    /// Acknowledged changes become durable by a flush. The device writes its cache back by itself when more
    /// than `held_max` of blocks are held back for the durable image.
    Volatile {
        /// The most sectors held back.
        held_max: Sectors,
    },
    /// Every acknowledged change is durable, since each ends with a flush. What is held back is as with
    /// [`Cache::Volatile`].
    WriteThrough {
        /// The most sectors held back.
        held_max: Sectors,
    },
}

/// The shape of a mapped pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedConfig {
    /// The map block of every volume.
    pub map_block: Sectors,
    /// The most that may be mapped and held back together.
    pub cap: Sectors,
    /// The size of the store's address space: the cap and room for the new blocks of live plans.
    pub physical: Sectors,
    /// What is promised before a flush.
    pub cache: Cache,
    /// Tell the store of blocks that are given back, by [`Step::Trim`].
    pub trim: bool,
}

/// Known mistakes, one for each rule that only the inside of the layer can break.
#[cfg(feature = "canary")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write of whole blocks goes in place, shared or not.
    RewriteShared,
    /// A read does not keep its blocks from being used again.
    ReadUnpinned,
    /// A copy does not keep its source blocks from being used again.
    CopyUnpinned,
    /// Changes of a part of a block do not wait for each other.
    LostUpdate,
    /// Blocks of the durable image are free before the next image is durable.
    FreedBeforeDurable,
    /// Blocks that a remap overwrites keep a reference.
    ReferenceLeak,
}

/// A pool of mapped volumes.
#[derive(Debug)]
pub struct Mapped {
    config: MappedConfig,
    volumes: Vec<Slot>,
    space: Space,
    parking: Parking<BlockClaim>,
    /// The chains that wait; the others are with their live plans.
    waiting: BTreeMap<RequestId, Waiting>,
    live: Slots<Work>,
    /// Blocks that live plans will map beyond what is mapped.
    reserved: u64,
    /// Redo records that live plans will append.
    promised: u64,
    flushes: Flushes,
    /// Links that a power cut keeps or undoes as a whole.
    links: Links,
    trim_running: bool,
    /// A commit, a trim or a removal gave something back since the parked links were last tried.
    given_back: bool,
    next_internal: u64,
    #[cfg(feature = "canary")]
    canary: Option<Canary>,
}

/// A volume's place. The epoch outlives the volume, so that what was begun on the old one commits nothing.
#[derive(Debug, Default)]
struct Slot {
    epoch: u64,
    volume: Option<Volume>,
}

#[derive(Debug)]
struct Volume {
    limits: Limits,
    map: RangeMap<Physical>,
    /// Logical blocks changed since the last snapshot, with what they were in it; kept for a volatile cache.
    dirty: RangeMap<Was>,
    /// Those of the running commit, with what they were in the snapshot before.
    committing: RangeMap<Was>,
}

/// What a live plan does when it comes back.
#[derive(Debug)]
enum Work {
    Read { pins: Pins, bytes: Bytes },
    Change(Box<Chain>, Change),
    Flush,
    Trim(Vec<Range<u64>>),
}

/// Physical blocks that a plan reads.
type Pins = SmallVec<[Range<u64>; 1]>;

impl Mapped {
    /// An empty pool. Panics on a configuration whose numbers are no multiples of the map block or whose store is
    /// smaller than its cap.
    pub fn new(config: MappedConfig) -> Self {
        let block = config.map_block.0;
        assert!(block.is_power_of_two() && config.map_block.bytes() <= crate::limits::MAP_BLOCK_MAX);
        assert!(config.cap.0.is_multiple_of(block) && config.physical.0.is_multiple_of(block));
        assert!(config.cap <= config.physical);
        let group = GROUP.whole_sectors().0 / block;
        let imaged = config.cache != Cache::None;
        Self {
            config,
            volumes: Vec::new(),
            space: Space::new(config.physical.0 / block, group, config.cap.0 / block, imaged, config.trim),
            parking: Parking::new(),
            waiting: BTreeMap::new(),
            live: Slots::default(),
            reserved: 0,
            promised: 0,
            flushes: Flushes::default(),
            links: Links::default(),
            trim_running: false,
            given_back: false,
            next_internal: RequestId::INTERNAL,
            #[cfg(feature = "canary")]
            canary: None,
        }
    }

    /// A pool with a known mistake.
    #[cfg(feature = "canary")]
    pub fn with_canary(config: MappedConfig, canary: Canary) -> Self {
        let mut device = Self::new(config);
        device.canary = Some(canary);
        device.space.canary = Some(canary);
        device
    }

    fn block(&self) -> u64 {
        self.config.map_block.0
    }

    /// The most sectors held back for the durable image, if there is one.
    fn held_max(&self) -> Option<Sectors> {
        match self.config.cache {
            Cache::None => None,
            Cache::Volatile { held_max } | Cache::WriteThrough { held_max } => Some(held_max),
        }
    }

    /// True when there is a durable image beside the map.
    fn imaged(&self) -> bool {
        self.held_max().is_some()
    }

    fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.volumes.get(id.index())?.volume.as_ref()
    }

    fn epoch(&self, id: VolumeId) -> u64 {
        self.volumes.get(id.index()).map_or(0, |slot| slot.epoch)
    }

    fn plan(&mut self, work: Work, request: RequestId, port: PortKind, link: Link, steps: Steps) -> Plan {
        let id = PlanId(self.live.insert(work));
        Plan { id, request, port, not_before: Instant::ORIGIN, link, steps }
    }

    fn internal(&mut self) -> RequestId {
        self.next_internal += 1;
        RequestId(self.next_internal)
    }

    fn add_volume(&mut self, id: VolumeId, limits: Limits) {
        assert_eq!(limits.map_block, self.config.map_block, "a pool has one map block");
        if self.volumes.len() <= id.index() {
            self.volumes.resize_with(id.index() + 1, Slot::default);
        }
        let slot = &mut self.volumes[id.index()];
        assert!(slot.volume.is_none(), "{id:?} exists");
        slot.volume = Some(Volume {
            limits,
            map: RangeMap::new(),
            dirty: RangeMap::new(),
            committing: RangeMap::new(),
        });
    }

    fn remove_volume(&mut self, id: VolumeId, out: &mut Out) {
        let Some(volume) = self.volumes.get_mut(id.index()).and_then(|slot| {
            slot.epoch += 1;
            slot.volume.take()
        }) else {
            return;
        };
        for piece in volume.map.iter() {
            self.space.release(piece.value.0..piece.value.0 + count(&piece.range), true);
        }
        self.flushes.removed(id);
        self.given_back = true;
        self.end_parked_of(id, BlkStatus::NoVolume, out);
    }

    /// What any answer may have made due: links that waited, the device's own work.
    fn settle(&mut self, cx: &mut Cx<'_>, out: &mut Out) {
        self.pump(cx, out);
        self.start_trim(out);
        self.write_back(cx, out);
    }

    fn start_trim(&mut self, out: &mut Out) {
        /// Bounds one call into the store.
        const RUNS: usize = 64;
        const MOST: Bytes = Bytes::mib(64);
        if self.trim_running || self.space.trimming_blocks() == 0 {
            return;
        }
        let runs = self.space.next_trim(RUNS, MOST.whole_sectors().0 / self.block());
        if runs.is_empty() {
            return;
        }
        self.trim_running = true;
        let steps = runs.iter().map(|run| Step::Trim { at: self.store_range(run.clone()) }).collect();
        let link = Link { volume: VolumeId::POOL, source: None, destination: None };
        let request = self.internal();
        let plan = self.plan(Work::Trim(runs), request, PortKind::None, link, steps);
        out.push((request, Next::Run(plan)));
    }
}

impl BlockDevice for Mapped {
    fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.volume(volume).map(|volume| &volume.limits)
    }

    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus> {
        if request.flags.has(Flags::APPEND) { Err(BlkStatus::NotSupp) } else { Ok(()) }
    }

    fn undoable(&self, log: &dyn RedoLog, volume: VolumeId, ranges: &[SectorRange]) -> usize {
        self.undoable_of(log, volume, ranges)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> Out {
        let mut out = Out::new();
        let id = request.id;
        if self.volume(request.volume).is_none() {
            return smallvec![(id, Next::Done(Completion::refused(BlkStatus::NoVolume)))];
        }
        let next = match &request.op {
            Op::Read(range) => return smallvec![(id, self.begin_read(id, request.volume, *range))],
            Op::Flush => self.begin_flush(cx, id, request.volume, &mut out),
            Op::Write(_) | Op::Discard(_) | Op::WriteZeroes(_) | Op::Copy(_) => {
                self.begin_chain(cx, request, &mut out)
            }
            Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                Next::Done(Completion::refused(BlkStatus::NotSupp))
            }
        };
        // The request's own answer is the first.
        if out.is_empty() {
            return smallvec![(id, next)];
        }
        out.insert(0, (id, next));
        out
    }

    fn finish(&mut self, cx: &mut Cx<'_>, plan: Plan, io: IoResult) -> Out {
        let mut out = Out::new();
        assert!(io.steps_done <= plan.steps.len(), "more steps done than planned");
        assert!(!io.status.is_ok() || io.steps_done == plan.steps.len(), "a plan is whole or failed");
        let work = self.live.remove(plan.id.0).expect("a plan is finished once");
        match work {
            Work::Read { pins, bytes } => {
                self.unpin(pins);
                let completion =
                    if io.status.is_ok() { Completion::ok(bytes) } else { Completion::refused(io.status) };
                out.push((plan.request, Next::Done(completion)));
            }
            Work::Change(chain, change) => self.finish_change(cx, chain, change, io.status, &mut out),
            Work::Flush => {
                self.given_back = true;
                self.finish_flush(cx, &plan, io.status, &mut out);
            }
            // A store that cannot take the space back keeps it, with contents nobody reads.
            Work::Trim(runs) => {
                self.trim_running = false;
                self.given_back = true;
                for run in runs {
                    self.space.trimmed(run);
                }
            }
        }
        self.settle(cx, &mut out);
        out
    }

    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out {
        let mut out = Out::new();
        self.abort_chain(id, &mut out);
        self.settle(cx, &mut out);
        out
    }

    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        let mut out = Out::new();
        self.settle(cx, &mut out);
        let next = self.next_wake(cx);
        (out, next)
    }

    fn control(&mut self, cx: &mut Cx<'_>, control: Control) -> Out {
        let mut out = Out::new();
        match control {
            Control::AddVolume(id, limits) => self.add_volume(id, limits),
            Control::RemoveVolume(id) => self.remove_volume(id, &mut out),
            // Zones are kept by a layer above.
            Control::FailZone(..) => {}
            Control::PowerCut(id, keep, chosen) => self.power_cut(cx, id, keep, &chosen, &mut out),
            Control::SetLimits(id, limits) => {
                if let Some(volume) = self.volumes.get_mut(id.index()).and_then(|slot| slot.volume.as_mut()) {
                    assert_eq!(
                        (volume.limits.capacity, volume.limits.logical_block, volume.limits.map_block),
                        (limits.capacity, limits.logical_block, limits.map_block),
                        "the geometry of a volume stays"
                    );
                    assert_eq!(volume.limits.zones, limits.zones, "so do its zones");
                    volume.limits = limits;
                }
            }
            Control::SetTiming(..) => {}
        }
        self.settle(cx, &mut out);
        out
    }

    fn usage(&self) -> Usage {
        let sectors = |blocks: u64| Sectors(blocks * self.block());
        let volumes = || self.volumes.iter().filter_map(|slot| slot.volume.as_ref());
        Usage {
            cap: self.config.cap,
            mapped: sectors(self.space.mapped_blocks()),
            held: sectors(self.space.held_blocks()),
            trimming: sectors(self.space.trimming_blocks()),
            extents: volumes().map(|volume| volume.map.len() as u64).sum(),
            shared_ranges: self.space.shared_ranges(),
            map_bytes: volumes().map(|volume| volume.map.memory() + volume.dirty.memory()).sum::<u64>()
                + self.space.memory(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let mut references: RangeMap<u32> = RangeMap::new();
        let mut pins: RangeMap<u32> = RangeMap::new();
        let add = |to: &mut RangeMap<u32>, run: Range<u64>| {
            to.update(run, &mut |_, n| Some(n.unwrap_or(0) + 1));
        };
        for volume in self.volumes.iter().filter_map(|slot| slot.volume.as_ref()) {
            volume.map.check()?;
            for piece in volume.map.iter() {
                add(&mut references, piece.value.0..piece.value.0 + count(&piece.range));
            }
        }
        let mut changes = 0;
        for work in self.live.values() {
            match work {
                Work::Read { pins: read, .. } => read.iter().for_each(|run| add(&mut pins, run.clone())),
                Work::Change(_, change) => {
                    changes += 1;
                    change.pins.iter().for_each(|run| add(&mut pins, run.clone()));
                    change.shared_runs().for_each(|run| add(&mut references, run));
                }
                Work::Flush | Work::Trim(_) => {}
            }
        }
        self.space.check(&references, &pins)?;
        if changes != self.parking.live() {
            return Err(format!("{changes} live changes, {} live claims", self.parking.live()));
        }
        self.check_waiting()
    }
}
