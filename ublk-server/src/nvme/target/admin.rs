//! Fabrics and admin commands: what each moves over the wire, and who does it.

use super::controller::{Controller, Kind};
use super::features::{self, Surroundings};
use super::subsystem::{Cx, Effect, Target};
use super::{ConnectionId, Reply, TRANSFER_MAX, Tag, Transfer};
use crate::nvme::wire::command::{AdminOpcode, FabricsType, Sqe};
use crate::nvme::wire::fabrics::ConnectData;
use crate::nvme::wire::feature::Feature;
use crate::nvme::wire::identify::IDENTIFY_LEN;
use crate::nvme::wire::log::LogFields;
use crate::nvme::wire::status::Status;

/// The data of a command, known from the command alone.
pub(super) fn transfer(sqe: &Sqe) -> Result<Transfer, Status> {
    let feature_len = || {
        let [fid, ..] = sqe.cdw10.to_bytes();
        // One that is not supported is refused when the command is done.
        Feature::of(fid).map_or(0, Feature::data_len)
    };
    match AdminOpcode::of(sqe.opcode).ok_or(Status::INVALID_OPCODE.dnr())? {
        AdminOpcode::Fabrics => match FabricsType::of(sqe.fctype()).ok_or(Status::INVALID_OPCODE.dnr())? {
            FabricsType::Connect => {
                Ok(Transfer::FromHost { len: size_of::<ConnectData>() as u32, or_more: false })
            }
            FabricsType::PropertyGet | FabricsType::PropertySet => Ok(Transfer::None),
        },
        AdminOpcode::Identify => Ok(Transfer::ToHost(IDENTIFY_LEN as u32)),
        AdminOpcode::GetLogPage => match u32::try_from(LogFields::of(sqe).len) {
            Ok(len) if len <= TRANSFER_MAX => Ok(Transfer::ToHost(len)),
            Ok(_) | Err(_) => Err(Status::INVALID_FIELD.dnr()),
        },
        AdminOpcode::GetFeatures => match feature_len() {
            0 => Ok(Transfer::None),
            len => Ok(Transfer::ToHost(len)),
        },
        AdminOpcode::SetFeatures => match feature_len() {
            0 => Ok(Transfer::None),
            len => Ok(Transfer::FromHost { len, or_more: false }),
        },
        AdminOpcode::Abort | AdminOpcode::AsyncEventRequest | AdminOpcode::KeepAlive => Ok(Transfer::None),
    }
}

impl Target {
    pub(super) fn dispatch(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        tag: Tag,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<Reply, Status> {
        let opcode = AdminOpcode::of(sqe.opcode).ok_or(Status::INVALID_OPCODE.dnr())?;
        let Some(queue) = self.queues.get(&connection).copied() else {
            let connects = opcode == AdminOpcode::Fabrics && sqe.fctype() == FabricsType::Connect.code();
            return match connects {
                true => Ok(self.connect(cx, connection, sqe, data).unwrap_or_else(|refused| refused)),
                false => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            };
        };
        let around =
            Surroundings { queues_max: self.config.queues_max, volatile_cache: self.config.volatile_cache };
        let controller = self.controllers.get_mut(&queue.controller).ok_or(Status::INTERNAL_ERROR.dnr())?;
        if opcode == AdminOpcode::Fabrics {
            return match FabricsType::of(sqe.fctype()).ok_or(Status::INVALID_OPCODE.dnr())? {
                FabricsType::PropertyGet => controller.property_get(sqe),
                FabricsType::PropertySet => {
                    let reply = controller.property_set(sqe, cx.effects);
                    self.changed();
                    reply
                }
                FabricsType::Connect => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            };
        }
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        match opcode {
            AdminOpcode::Identify => self.identify(queue.controller, sqe),
            AdminOpcode::GetLogPage => self.log_page(cx, queue.controller, sqe),
            AdminOpcode::GetFeatures => controller.get_feature(sqe, around),
            AdminOpcode::SetFeatures => {
                let reply = controller.set_feature(sqe, data, around)?;
                if features::named(sqe, controller.kind)? == Feature::KeepAliveTimer {
                    controller.alive(cx.now);
                }
                self.changed();
                Ok(reply)
            }
            AdminOpcode::KeepAlive => {
                controller.alive(cx.now);
                Ok(Reply::ok(0))
            }
            AdminOpcode::AsyncEventRequest => controller.event_request(tag, cx.effects),
            AdminOpcode::Abort if controller.kind == Kind::Nvm => Ok(abort(controller, sqe, cx.effects)),
            AdminOpcode::Abort | AdminOpcode::Fabrics => Err(Status::INVALID_OPCODE.dnr()),
        }
    }
}

/// Abort. It says that nothing was ended at once, which is so: a command ends before its next link, or with it.
fn abort(controller: &Controller, sqe: &Sqe, effects: &mut Vec<Effect>) -> Reply {
    const NOT_AT_ONCE: u64 = 1;
    let [a, b, c, d] = sqe.cdw10.to_bytes();
    let (sqid, cid) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    if let Some(&connection) = controller.connections.get(&sqid) {
        effects.push(Effect::Abort { connection, cid });
    }
    Reply::ok(NOT_AT_ONCE)
}
