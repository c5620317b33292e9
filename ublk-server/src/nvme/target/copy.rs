//! Copy, from its list of ranges to the pool's segments.

use super::subsystem::{Namespace, View};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::copy::{CopyFields, CopyFormat, CopyRange, entries};
use crate::nvme::wire::status::Status;
use emulation::{CopyCommand, CopySegment, Flags, Op};
use smallvec::SmallVec;

/// Bits of command dword 12 that name what is not supported: command extension type and directive type.
const UNSUPPORTED: u32 = 0xf << 16 | Sqe::DTYPE;

/// Refuses a Copy that no list could make right, and says how long its list is.
pub(super) fn list_len(sqe: &Sqe, view: &View) -> Result<u32, Status> {
    format(sqe, view)?;
    Ok(CopyFields::of(sqe).bytes())
}

fn format(sqe: &Sqe, view: &View) -> Result<CopyFormat, Status> {
    let fields = CopyFields::of(sqe);
    let format = CopyFormat::of(fields.desfmt).ok_or(Status::INVALID_FIELD.dnr())?;
    let enabled = match format {
        CopyFormat::Same => true,
        CopyFormat::Cross => view.cross_copy,
    };
    if !enabled || sqe.has(UNSUPPORTED) { Err(Status::INVALID_FIELD.dnr()) } else { Ok(format) }
}

/// The request that a Copy is. Limits, bounds and overlap are the pool's to check, all of them before anything
/// changes.
pub(super) fn decode(
    sqe: &Sqe,
    namespace: &Namespace,
    list: &[u8],
    view: &View,
) -> Result<(Op, Flags), Status> {
    let format = format(sqe, view)?;
    let mut segments = SmallVec::new();
    let mut at = sqe.slba();
    let (mut fast, mut slow) = (false, false);
    for range in entries::<CopyRange>(list) {
        let source = match format {
            CopyFormat::Same => namespace,
            CopyFormat::Cross => view.namespaces.named(range.snsid.get())?,
        };
        if source.limits.logical_block != namespace.limits.logical_block {
            return Err(Status::INCOMPATIBLE_NAMESPACE.dnr());
        }
        let segment = CopySegment {
            source_volume: source.volume,
            source: source.sectors(range.slba.get(), range.blocks())?,
            destination: namespace.sectors(at, range.blocks())?.start,
        };
        at = at.saturating_add(range.blocks());
        match format == CopyFormat::Cross && range.sopt.get() & CopyRange::FCO != 0 {
            true if !is_fast(namespace, &segment) => return Err(Status::FAST_COPY_NOT_POSSIBLE.dnr()),
            true => fast = true,
            false => slow = true,
        }
        segments.push(segment);
    }
    let overlap = match format {
        CopyFormat::Same => Flags::MAY_OVERLAP,
        CopyFormat::Cross => Flags::NONE,
    };
    // The pool knows the option for a whole command only; one that asks for it in some ranges was checked above.
    let fast = if fast && !slow { Flags::FAST_ONLY } else { Flags::NONE };
    let fua = if sqe.has(Sqe::FUA) { Flags::FUA } else { Flags::NONE };
    Ok((Op::Copy(CopyCommand { segments }), overlap | fast | fua))
}

fn is_fast(namespace: &Namespace, segment: &CopySegment) -> bool {
    emulation::copy::is_fast(segment, namespace.limits.map_block, namespace.limits.copy_mode)
}
