//! Block devices on block devices: disks, partitions, linear maps, which concatenate when they have several targets,
//! and stripes.

use super::design::Design;
use crate::limits::{CopyMode, Limits};
use crate::request::VolumeId;
use crate::units::{Sector, SectorRange, Sectors};

/// A block device of a stack. It lies on devices that were added before it, so there is no cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(usize);

/// A disk and its request queue.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its volume of the pool.
    pub volume: VolumeId,
    /// What the volume takes.
    pub limits: Limits,
    /// `nomerges` of its queue.
    pub nomerges: bool,
    /// Requests at the disk at a time; at least 1.
    pub depth: u32,
}

/// A part of a linear map.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// On this device.
    pub on: Node,
    /// From here on.
    pub start: Sector,
    /// So long.
    pub len: Sectors,
}

/// What a device is. `deferred`: its driver hands bios on later, from the one worker of the host.
#[derive(Clone, Debug)]
pub enum Kind {
    /// At the bottom.
    Disk(Disk),
    /// A part of a device.
    Partition(Target),
    /// Targets one behind the other.
    Linear {
        /// The targets.
        targets: Vec<Target>,
        /// See [`Kind`].
        deferred: bool,
    },
    /// Chunks that go round the devices.
    Stripe {
        /// The length of a chunk.
        chunk: Sectors,
        /// The devices, each of which is used from its start.
        on: Vec<Node>,
        /// See [`Kind`].
        deferred: bool,
    },
}

/// Why a device cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// It lies on a device that is not there.
    #[error("device {0} does not exist: devices are added from the bottom up")]
    NoDevice(usize),
    /// It has no sectors.
    #[error("a device without a sector")]
    Empty,
    /// It passes the end of a device that it lies on.
    #[error("a target ends at sector {0}, its device at {1}")]
    Beyond(u64, u64),
    /// Its queue takes no request.
    #[error("a queue of depth 0")]
    Depth,
}

/// What a copy command to a device may be. All are 0 when it takes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// In all.
    pub bytes: Sectors,
    /// Each segment.
    pub segment: Sectors,
    /// Segments.
    pub segments: u32,
}

impl CopyLimits {
    const NONE: Self = Self { bytes: Sectors::ZERO, segment: Sectors::ZERO, segments: 0 };

    /// What both take; the names of the block layer's rule: limits stack by their minimum.
    fn stacked(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            segment: self.segment.min(other.segment),
            segments: self.segments.min(other.segments),
        }
    }

    /// True when no copy is taken.
    pub fn is_none(&self) -> bool {
        self.bytes.is_zero()
    }
}

/// The devices of a host.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    nodes: Vec<(Kind, Sectors)>,
}

impl Stack {
    /// Adds a device.
    ///
    /// # Errors
    /// Says why there can be no such device; nothing is added then.
    pub fn add(&mut self, kind: Kind) -> Result<Node, StackError> {
        let capacity = match &kind {
            Kind::Disk(disk) if disk.depth == 0 => return Err(StackError::Depth),
            Kind::Disk(disk) => disk.limits.capacity,
            Kind::Partition(target) => self.fits(target)?,
            Kind::Linear { targets, .. } => {
                targets.iter().try_fold(Sectors::ZERO, |sum, target| Ok(sum + self.fits(target)?))?
            }
            Kind::Stripe { chunk, on, .. } => {
                let mut least = Sectors(u64::MAX);
                for node in on {
                    least = least.min(self.known(*node)?);
                }
                let chunks = least.0.checked_div(chunk.0).unwrap_or(0);
                if on.is_empty() { Sectors::ZERO } else { Sectors(chunks * chunk.0 * on.len() as u64) }
            }
        };
        if capacity.is_zero() {
            return Err(StackError::Empty);
        }
        self.nodes.push((kind, capacity));
        Ok(Node(self.nodes.len() - 1))
    }

    fn known(&self, node: Node) -> Result<Sectors, StackError> {
        self.nodes.get(node.0).map(|node| node.1).ok_or(StackError::NoDevice(node.0))
    }

    fn fits(&self, target: &Target) -> Result<Sectors, StackError> {
        let capacity = self.known(target.on)?;
        let end = target.start.0.saturating_add(target.len.0);
        if end > capacity.0 { Err(StackError::Beyond(end, capacity.0)) } else { Ok(target.len) }
    }

    /// The size of a device.
    pub fn capacity(&self, node: Node) -> Sectors {
        self.nodes[node.0].1
    }

    pub(crate) fn kind(&self, node: Node) -> &Kind {
        &self.nodes[node.0].0
    }

    /// Every disk.
    pub fn disks(&self) -> impl Iterator<Item = (Node, &Disk)> {
        self.nodes.iter().enumerate().filter_map(|(index, (kind, _))| match kind {
            Kind::Disk(disk) => Some((Node(index), disk)),
            Kind::Partition(_) | Kind::Linear { .. } | Kind::Stripe { .. } => None,
        })
    }

    pub(crate) fn disk(&self, node: Node) -> &Disk {
        match self.kind(node) {
            Kind::Disk(disk) => disk,
            Kind::Partition(_) | Kind::Linear { .. } | Kind::Stripe { .. } => panic!("{node:?} is no disk"),
        }
    }

    /// Where a range within the device lies one level below, in order. Panics for a disk.
    pub(crate) fn map(&self, node: Node, range: SectorRange) -> Vec<(Node, SectorRange)> {
        match self.kind(node) {
            Kind::Disk(_) => panic!("a disk lies on nothing"),
            Kind::Partition(target) => {
                vec![(
                    target.on,
                    SectorRange { start: target.start + Sectors(range.start.0), len: range.len },
                )]
            }
            Kind::Linear { targets, .. } => {
                let mut pieces = Vec::new();
                let mut begin = Sector(0);
                for target in targets {
                    let own = SectorRange { start: begin, len: target.len };
                    if let Some(part) = own.intersection(range) {
                        let start = target.start + (part.start - begin);
                        pieces.push((target.on, SectorRange { start, len: part.len }));
                    }
                    begin = own.end();
                }
                pieces
            }
            Kind::Stripe { chunk, on, .. } => {
                let mut pieces = Vec::new();
                let mut rest = range;
                while !rest.is_empty() {
                    let (number, offset) = (rest.start.0 / chunk.0, rest.start.0 % chunk.0);
                    let (part, later) = rest.split_at(Sectors(chunk.0 - offset));
                    let round = on.len() as u64;
                    let device = on[usize::try_from(number % round).expect("below their number")];
                    let start = Sector(number / round * chunk.0 + offset);
                    pieces.push((device, SectorRange { start, len: part.len }));
                    rest = later;
                }
                pieces
            }
        }
    }

    /// Where a range within the device lies on disks, in order.
    pub fn flatten(&self, node: Node, range: SectorRange) -> Vec<(Node, SectorRange)> {
        match self.kind(node) {
            Kind::Disk(_) => vec![(node, range)],
            Kind::Partition(_) | Kind::Linear { .. } | Kind::Stripe { .. } => self
                .map(node, range)
                .into_iter()
                .flat_map(|(below, part)| self.flatten(below, part))
                .collect(),
        }
    }

    /// What a copy to this device may be under a design.
    pub fn copy_limits(&self, node: Node, design: Design) -> CopyLimits {
        let all = |nodes: &mut dyn Iterator<Item = Node>| {
            nodes.map(|below| self.copy_limits(below, design)).reduce(CopyLimits::stacked)
        };
        match self.kind(node) {
            Kind::Disk(disk) if disk.limits.copy_mode == CopyMode::Off => CopyLimits::NONE,
            Kind::Disk(disk) => CopyLimits {
                bytes: disk.limits.copy_max_bytes.whole_sectors(),
                segment: disk.limits.copy_max_segment_bytes.whole_sectors(),
                segments: disk.limits.copy_max_segments,
            },
            Kind::Partition(target) => self.copy_limits(target.on, design),
            Kind::Linear { targets, .. } => {
                all(&mut targets.iter().map(|target| target.on)).unwrap_or(CopyLimits::NONE)
            }
            Kind::Stripe { on, .. } if design.passes_stripes() => {
                all(&mut on.iter().copied()).unwrap_or(CopyLimits::NONE)
            }
            Kind::Stripe { .. } => CopyLimits::NONE,
        }
    }

    /// The logical block of a device: the largest of the disks below it.
    pub fn logical_block(&self, node: Node) -> Sectors {
        let below: Vec<Node> = match self.kind(node) {
            Kind::Disk(disk) => return disk.limits.logical_block,
            Kind::Partition(target) => vec![target.on],
            Kind::Linear { targets, .. } => targets.iter().map(|target| target.on).collect(),
            Kind::Stripe { on, .. } => on.clone(),
        };
        below.into_iter().map(|node| self.logical_block(node)).max().unwrap_or(Sectors(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> SectorRange {
        SectorRange { start: Sector(start), len: Sectors(len) }
    }

    fn disk(volume: u32) -> Kind {
        let limits = Limits::new(Sectors(1024), Sectors(1), Sectors(8));
        Kind::Disk(Disk { volume: VolumeId(volume), limits, nomerges: false, depth: 32 })
    }

    #[test]
    fn ranges_are_cut_at_targets_and_chunks() {
        let mut stack = Stack::default();
        let (a, b) = (stack.add(disk(0)).unwrap(), stack.add(disk(1)).unwrap());
        let part =
            stack.add(Kind::Partition(Target { on: a, start: Sector(100), len: Sectors(200) })).unwrap();
        let targets = vec![
            Target { on: part, start: Sector(50), len: Sectors(150) },
            Target { on: b, start: Sector(8), len: Sectors(100) },
        ];
        let concat = stack.add(Kind::Linear { targets, deferred: false }).unwrap();
        assert_eq!(stack.capacity(concat), Sectors(250));
        assert_eq!(stack.flatten(concat, range(140, 20)), [(a, range(290, 10)), (b, range(8, 10))]);
        let stripe = Kind::Stripe { chunk: Sectors(16), on: vec![a, b], deferred: false };
        let stripe = stack.add(stripe).unwrap();
        assert_eq!(stack.capacity(stripe), Sectors(2048));
        let pieces = [(a, range(20, 12)), (b, range(16, 16)), (a, range(32, 2))];
        assert_eq!(stack.flatten(stripe, range(36, 30)), pieces);
        assert!(stack.copy_limits(stripe, Design::Pair).is_none());
        assert!(!stack.copy_limits(stripe, Design::Vector).is_none());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut stack = Stack::default();
        let a = stack.add(disk(0)).unwrap();
        let part = |on, start, len| Kind::Partition(Target { on, start: Sector(start), len: Sectors(len) });
        assert_eq!(stack.add(part(Node(7), 0, 1)), Err(StackError::NoDevice(7)));
        assert_eq!(stack.add(part(a, 1000, 25)), Err(StackError::Beyond(1025, 1024)));
        assert_eq!(stack.add(part(a, 0, 0)), Err(StackError::Empty));
        let stripe = |chunk, on| Kind::Stripe { chunk: Sectors(chunk), on, deferred: false };
        assert_eq!(stack.add(stripe(0, vec![a])), Err(StackError::Empty));
        assert_eq!(stack.add(stripe(8, Vec::new())), Err(StackError::Empty));
        assert_eq!(stack.add(Kind::Linear { targets: Vec::new(), deferred: true }), Err(StackError::Empty));
    }
}
