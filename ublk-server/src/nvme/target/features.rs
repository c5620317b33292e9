//! Get Features and Set Features.

use super::Reply;
use super::controller::{Controller, Kind};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::copy::CopyFormat;
use crate::nvme::wire::feature::{EVENT_NAMESPACE, Feature, HOST_BEHAVIOR_LEN, SAVE, enables_cross_copy};
use crate::nvme::wire::status::Status;

/// The features of a controller that a host can set.
#[derive(Clone, Debug)]
pub(super) struct Features {
    /// I/O queues that it may have; `None` until it has asked.
    pub(super) queues: Option<u16>,
    /// The events that it wants.
    pub(super) events: u32,
    /// Keep alive timeout in milliseconds; 0 for none.
    pub(super) kato: u32,
    arbitration: u32,
    temperature: u32,
    host_behavior: [u8; HOST_BEHAVIOR_LEN],
}

impl Default for Features {
    fn default() -> Self {
        Self {
            queues: None,
            events: 0,
            kato: 0,
            arbitration: 0,
            temperature: TEMPERATURE_MAX,
            host_behavior: [0; HOST_BEHAVIOR_LEN],
        }
    }
}

/// The highest temperature threshold there is, in kelvin: none of memory is ever reached.
const TEMPERATURE_MAX: u32 = 0xffff;

impl Features {
    pub(super) fn cross_copy(&self) -> bool {
        enables_cross_copy(&self.host_behavior)
    }

    /// A reset of the controller takes back what was set, except for the keep alive timer.
    pub(super) fn reset(&mut self) {
        *self = Self { kato: self.kato, ..Self::default() };
    }
}

/// The feature that a command names, if this kind of controller has it.
pub(super) fn named(sqe: &Sqe, kind: Kind) -> Result<Feature, Status> {
    let [fid, ..] = sqe.cdw10.to_bytes();
    let feature = Feature::of(fid).ok_or(Status::INVALID_FIELD.dnr())?;
    let there = match kind {
        Kind::Nvm => true,
        Kind::Discovery => {
            matches!(feature, Feature::AsyncEventConfiguration | Feature::KeepAliveTimer)
        }
    };
    if there { Ok(feature) } else { Err(Status::INVALID_FIELD.dnr()) }
}

/// What of a controller's surroundings features show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    pub(super) queues_max: u16,
    pub(super) volatile_cache: bool,
}

impl Controller {
    pub(super) fn get_feature(&self, sqe: &Sqe, around: Surroundings) -> Result<Reply, Status> {
        let features = &self.features;
        let value = match named(sqe, self.kind)? {
            Feature::Arbitration => features.arbitration.into(),
            Feature::PowerManagement | Feature::CommandSetProfile => 0,
            // Threshold 0 is the upper one; there is no lower one to reach.
            Feature::TemperatureThreshold if sqe.cdw11.get() >> 20 & 3 == 0 => features.temperature.into(),
            Feature::TemperatureThreshold => 0,
            Feature::VolatileWriteCache if around.volatile_cache => 1,
            Feature::VolatileWriteCache => return Err(Status::INVALID_FIELD.dnr()),
            Feature::NumberOfQueues => both(features.queues.unwrap_or(around.queues_max)),
            // Nothing beyond what is promised for a power failure can be switched off.
            Feature::WriteAtomicity => 0,
            Feature::AsyncEventConfiguration => features.events.into(),
            Feature::KeepAliveTimer => features.kato.into(),
            Feature::HostBehaviorSupport => return Ok(Reply::data(features.host_behavior.to_vec())),
            Feature::HostIdentifier => {
                // The short form, 64 bits, is not for fabrics.
                let extended = sqe.cdw11.get() & 1 != 0;
                return match extended {
                    true => Ok(Reply::data(self.host_id.to_vec())),
                    false => Err(Status::INVALID_FIELD.dnr()),
                };
            }
        };
        Ok(Reply::ok(value))
    }

    pub(super) fn set_feature(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        around: Surroundings,
    ) -> Result<Reply, Status> {
        let feature = named(sqe, self.kind)?;
        if sqe.cdw10.get() & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        let value = sqe.cdw11.get();
        let only = |allowed: bool| match allowed {
            true => Ok(Reply::ok(0)),
            false => Err(Status::INVALID_FIELD.dnr()),
        };
        match feature {
            Feature::Arbitration => self.features.arbitration = value,
            Feature::TemperatureThreshold if value >> 20 & 3 == 0 => {
                self.features.temperature = value & 0xffff
            }
            Feature::TemperatureThreshold => {}
            Feature::PowerManagement | Feature::CommandSetProfile => return only(value == 0),
            Feature::WriteAtomicity => return only(value <= 1),
            // The cache cannot be switched off, so it can only be left on.
            Feature::VolatileWriteCache if around.volatile_cache && value & 1 != 0 => {}
            Feature::VolatileWriteCache if around.volatile_cache => {
                return Err(Status::FEATURE_NOT_CHANGEABLE.dnr());
            }
            Feature::VolatileWriteCache => return Err(Status::INVALID_FIELD.dnr()),
            Feature::NumberOfQueues => return self.set_queues(value, around.queues_max),
            Feature::AsyncEventConfiguration => match self.kind {
                Kind::Nvm if value & !(EVENT_NAMESPACE | 0xff) != 0 => {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                Kind::Nvm | Kind::Discovery => self.features.events = value,
            },
            Feature::KeepAliveTimer => self.features.kato = value,
            Feature::HostBehaviorSupport => self.set_host_behavior(data)?,
            // Connect has said it.
            Feature::HostIdentifier => return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
        }
        Ok(Reply::ok(0))
    }

    fn set_queues(&mut self, value: u32, most: u16) -> Result<Reply, Status> {
        let (submission, completion) = (value & 0xffff, value >> 16);
        if submission == 0xffff || completion == 0xffff {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if self.connections.len() > 1 {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        // A queue of fabrics is both: the larger number is what the host means.
        let asked = u16::try_from(submission.max(completion) + 1).unwrap_or(most);
        let granted = asked.min(most);
        self.features.queues = Some(granted);
        Ok(Reply::ok(both(granted)))
    }

    fn set_host_behavior(&mut self, data: &[u8]) -> Result<(), Status> {
        let refused = Status::INVALID_FIELD.dnr();
        let behavior: &[u8; HOST_BEHAVIOR_LEN] = data.try_into().map_err(|_| refused)?;
        let enabled = u16::from_le_bytes([behavior[4], behavior[5]]);
        if behavior[..4].iter().any(|byte| *byte > 1) || enabled & !CopyFormat::OCFS != 0 {
            return Err(refused);
        }
        self.features.host_behavior = *behavior;
        Ok(())
    }
}

/// A number of queues as the wire has it: in both halves, counted from 0.
fn both(queues: u16) -> u64 {
    let number = u64::from(queues.saturating_sub(1));
    number << 16 | number
}
