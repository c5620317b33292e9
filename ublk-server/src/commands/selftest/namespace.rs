//! A namespace of the kernel's NVMe driver as a target: reads, writes and copies are commands of their own, below the
//! page cache and without the block layer.

use super::Failure;
use super::target::{Done, Options, Outcome, Segment, Shape, Target};
use crate::nvme::client::copy;
use crate::nvme::passthrough::{self, Ended, Queue};
use crate::nvme::wire::command::{AdminOpcode, IoOpcode, Sqe};
use crate::nvme::wire::copy::{CopyFormat, CopyRange, RANGES_MAX};
use crate::nvme::wire::feature::{Feature, HOST_BEHAVIOR_LEN};
use crate::nvme::wire::identify::{Cns, IDENTIFY_LEN, IdentifyController, IdentifyNamespace, bits};
use crate::nvme::wire::read;
use std::cell::OnceCell;
use std::fs::File;
use zerocopy::little_endian::{U16, U32};

/// The most bytes of a read or write: every controller takes so many.
const PIECE: u64 = 4096;
/// The most blocks that a range can name.
const RANGE_BLOCKS_MAX: u64 = 1 << 16;

pub(super) struct Namespace {
    file: File,
    nsid: u32,
    shape: Shape,
    /// Formats that the controller has (OCFS).
    formats: u16,
    /// What the host's behavior was before format 2h was enabled, or why it cannot be; empty until it is needed.
    behavior: OnceCell<Result<[u8; HOST_BEHAVIOR_LEN], String>>,
}

fn refused(what: &str, ended: Ended) -> Failure {
    Failure::failed(format!("{what}: {}", ended.status))
}

/// `/dev/nvmeXnY`.
///
/// # Errors
/// It cannot be opened, has zones, or does no Copy.
pub(super) fn open(path: &str) -> Result<Namespace, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("{path}: {error}"));
    let file = File::options().read(true).write(true).open(path).map_err(failed)?;
    let name = path.trim_start_matches("/dev/");
    let attribute = |what: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/block/{name}/{what}")).map_err(failed)?;
        Ok::<_, Failure>(text.trim().to_string())
    };
    if attribute("queue/zoned")? != "none" {
        return Err(Failure::failed(format!("{path}: the clauses are judged on disks without zones")));
    }
    let nsid = attribute("nsid")?;
    let nsid = nsid.parse().map_err(|_| Failure::failed(format!("{path}: nsid {nsid}")))?;
    let controller: IdentifyController = identify(&file, Cns::Controller, 0)?;
    let namespace: IdentifyNamespace = identify(&file, Cns::Namespace, nsid)?;
    if controller.oncs.get() & bits::ONCS_COPY == 0 {
        return Err(Failure::failed(format!("{path}: the controller has no Copy command")));
    }
    let block = u64::from(namespace.block_size());
    let best = if namespace.nsfeat & bits::NSFEAT_OPTPERF == 0 { 0 } else { namespace.npwg.get() };
    let shape = Shape {
        name: name.to_string(),
        size: namespace.nsze.get().saturating_mul(block),
        logical_block: block,
        physical_block: block * (u64::from(best) + 1),
        copy_max_bytes: u64::from(namespace.mcl.get()) * block,
        copy_max_segment_bytes: u64::from(namespace.mssrl.get()) * block,
        copy_max_segments: u32::from(namespace.msrc) + 1,
        zone_size: None,
    };
    if !(512..=PIECE).contains(&block) {
        return Err(Failure::failed(format!("{path}: blocks of {block} bytes")));
    }
    Ok(Namespace { file, nsid, shape, formats: controller.ocfs.get(), behavior: OnceCell::new() })
}

fn identify<T>(file: &File, cns: Cns, nsid: u32) -> Result<T, Failure>
where
    T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable,
{
    let mut sqe = Sqe::new(AdminOpcode::Identify.code(), nsid);
    sqe.cdw10 = U32::new(cns.code().into());
    let mut data = vec![0; IDENTIFY_LEN];
    let ended = passthrough::run(file, Queue::Admin, &sqe, &mut data)
        .map_err(|error| Failure::failed(format!("Identify: {error}")))?;
    if !ended.status.is_ok() {
        return Err(refused("Identify", ended));
    }
    Ok(read(&data).expect("as much as was asked for"))
}

impl Namespace {
    fn io(&self, sqe: &Sqe, data: &mut [u8]) -> Result<Ended, Failure> {
        let run = passthrough::run(&self.file, Queue::Io, sqe, data);
        run.map_err(|error| Failure::failed(format!("command {:02x}h: {error}", sqe.opcode)))
    }

    /// Reads or writes a piece of at most [`PIECE`] bytes.
    fn piece(&self, opcode: IoOpcode, offset: u64, data: &mut [u8]) -> Result<(), Failure> {
        let block = self.shape.logical_block;
        let blocks = u32::try_from(data.len() as u64 / block).expect("at most a piece");
        let ended = self.io(&Sqe::io(opcode, self.nsid, offset / block, blocks), data)?;
        if ended.status.is_ok() { Ok(()) } else { Err(refused(&format!("{opcode:?} at {offset}"), ended)) }
    }

    /// Enables format 2h, whose commands must not overlap and may demand to be fast.
    fn cross(&self) -> Result<(), String> {
        if self.formats & 1 << CopyFormat::Cross.code() == 0 {
            return Err("the controller has no Copy format 2h".to_string());
        }
        let enabled = self.behavior.get_or_init(|| {
            let mut before = [0; HOST_BEHAVIOR_LEN];
            self.host_behavior(AdminOpcode::GetFeatures, &mut before)?;
            let mut after = before;
            let formats = u16::from_le_bytes([before[4], before[5]]) | CopyFormat::CDFE;
            after[4..6].copy_from_slice(&formats.to_le_bytes());
            self.host_behavior(AdminOpcode::SetFeatures, &mut after)?;
            Ok(before)
        });
        enabled.as_ref().map(drop).map_err(String::clone)
    }

    fn host_behavior(&self, opcode: AdminOpcode, data: &mut [u8; HOST_BEHAVIOR_LEN]) -> Result<(), String> {
        let mut sqe = Sqe::new(opcode.code(), 0);
        sqe.cdw10 = U32::new(Feature::HostBehaviorSupport.code().into());
        let failed = |why: String| format!("Copy format 2h cannot be enabled: {opcode:?}: {why}");
        let ended = passthrough::run(&self.file, Queue::Admin, &sqe, data);
        match ended.map_err(|error| failed(error.to_string()))? {
            Ended { status, .. } if status.is_ok() => Ok(()),
            Ended { status, .. } => Err(failed(status.to_string())),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(Ok(before)) = self.behavior.get() {
            let mut before = *before;
            // A controller that keeps the format enabled loses nothing by it.
            drop(self.host_behavior(AdminOpcode::SetFeatures, &mut before));
        }
    }
}

impl Target for Namespace {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let mut data = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        for (at, piece) in (offset..).step_by(PIECE as usize).zip(data.chunks_mut(PIECE as usize)) {
            self.piece(IoOpcode::Read, at, piece)?;
        }
        Ok(data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        for (at, piece) in (offset..).step_by(PIECE as usize).zip(data.chunks(PIECE as usize)) {
            self.piece(IoOpcode::Write, at, &mut piece.to_vec())?;
        }
        Ok(())
    }

    fn cannot(&self, segments: &[Segment], options: Options) -> Option<String> {
        let block = self.shape.logical_block;
        let mut next = segments.first().map_or(0, |segment| segment.2);
        for &(source, length, destination) in segments {
            if [source, length, destination].iter().any(|bytes| !bytes.is_multiple_of(block)) {
                return Some("a range is so many blocks".to_string());
            }
            if !(block..=RANGE_BLOCKS_MAX * block).contains(&length) {
                return Some("a range has 1 to 65536 blocks".to_string());
            }
            if destination != next {
                return Some("the ranges go to one place".to_string());
            }
            next = destination + length;
        }
        if !(1..=RANGES_MAX as usize).contains(&segments.len()) {
            return Some("a command has 1 to 256 ranges".to_string());
        }
        if options.fast_only || options.no_overlap { self.cross().err() } else { None }
    }

    fn copy(&self, segments: &[Segment], options: Options) -> Result<Outcome, Failure> {
        if let Some(why) = self.cannot(segments, options) {
            return Err(Failure::failed(format!("a command that cannot be: {why}")));
        }
        let block = self.shape.logical_block;
        let format = match options.fast_only || options.no_overlap {
            true => CopyFormat::Cross,
            false => CopyFormat::Same,
        };
        let nsid = if format == CopyFormat::Cross { self.nsid } else { 0 };
        let ranges: Vec<CopyRange> = segments
            .iter()
            .map(|&(source, length, _)| {
                let blocks = u32::try_from(length / block).unwrap_or(u32::MAX);
                let mut range = CopyRange::new(nsid, source / block, blocks);
                range.sopt = U16::new(if options.fast_only { CopyRange::FCO } else { 0 });
                range
            })
            .collect();
        let (mut sqe, mut list) = copy(self.nsid, segments[0].2 / block, format, &ranges);
        if options.fua {
            sqe.cdw12 = U32::new(sqe.cdw12.get() | Sqe::FUA);
        }
        let ended = self.io(&sqe, &mut list)?;
        if !ended.status.is_ok() {
            return Ok(Err(ended.status.to_string()));
        }
        // Success of less than all would be a mistake of its own, and only the contents show it.
        let bytes = segments.iter().map(|(_, length, _)| length).sum();
        Ok(Ok(Done { bytes, moved: 0 }))
    }
}
