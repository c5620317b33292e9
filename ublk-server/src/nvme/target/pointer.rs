//! The data pointer of a command, against what the command says of itself.

use super::{TRANSFER_MAX, Transfer};
use crate::nvme::wire::command::{Sgl, Sqe};
use crate::nvme::wire::status::Status;

/// How the data of a command moves.
pub(super) enum Moves<'a> {
    /// There is none.
    Nothing,
    /// It came with the command.
    InCapsule(&'a [u8]),
    /// So many bytes, by PDUs of their own.
    ByPdus(usize),
}

/// Compares what a command says of its data with what it must be.
pub(super) fn pointer<'a>(sqe: &Sqe, transfer: Transfer, capsule: &'a [u8]) -> Result<Moves<'a>, Status> {
    let said = sqe.dptr.length.get();
    let wrong_length = Status::DATA_SGL_LENGTH_INVALID.dnr();
    let fits = match transfer {
        Transfer::None => return Ok(Moves::Nothing),
        Transfer::ToHost(len) => said == len,
        Transfer::FromHost { len, or_more: false } => said == len,
        Transfer::FromHost { len, or_more: true } => said >= len && said <= TRANSFER_MAX,
    };
    let len = said as usize;
    match (transfer, sqe.dptr.kind) {
        (Transfer::ToHost(_), Sgl::TRANSPORT) | (Transfer::FromHost { .. }, Sgl::TRANSPORT) => match fits {
            true => Ok(Moves::ByPdus(len)),
            false => Err(wrong_length),
        },
        (Transfer::FromHost { .. }, Sgl::IN_CAPSULE) => {
            let offset =
                usize::try_from(sqe.dptr.address.get()).map_err(|_| Status::SGL_OFFSET_INVALID.dnr())?;
            let end = offset.checked_add(len).ok_or(Status::SGL_OFFSET_INVALID.dnr())?;
            let data = capsule.get(offset..end).ok_or(Status::SGL_OFFSET_INVALID.dnr())?;
            if fits { Ok(Moves::InCapsule(data)) } else { Err(wrong_length) }
        }
        (Transfer::ToHost(_) | Transfer::FromHost { .. } | Transfer::None, _) => {
            Err(Status::SGL_TYPE_INVALID.dnr())
        }
    }
}
