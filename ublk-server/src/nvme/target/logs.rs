//! Get Log Page.

use super::Reply;
use super::controller::{Controller, ELPE, Kind};
use super::subsystem::{Cx, Health, Target};
use crate::nvme::wire::command::{AdminOpcode, IoOpcode, Sqe};
use crate::nvme::wire::feature::Feature;
use crate::nvme::wire::identify::CommandSet;
use crate::nvme::wire::log::{
    EFFECT_CONTENT, EFFECT_SUPPORTED, EffectsLog, ErrorEntry, HealthLog, LogFields, LogPage,
};
use crate::nvme::wire::status::Status;
use crate::nvme::wire::{text, to_vec, zeroed};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// A healthy temperature, in kelvin.
const TEMPERATURE: u16 = 298;
/// The unit of what was read and written in the health log.
const DATA_UNIT: u64 = 512_000;

impl Target {
    pub(super) fn log_page(&mut self, cx: &mut Cx<'_>, cntlid: u16, sqe: &Sqe) -> Result<Reply, Status> {
        let fields = LogFields::of(sqe);
        let entries = self.discovery_log(cx.local, cntlid);
        let controller = self.controllers.get_mut(&cntlid).ok_or(Status::INTERNAL_ERROR.dnr())?;
        let page = LogPage::of(fields.lid).filter(|page| has(controller.kind, *page));
        let page = page.ok_or(Status::INVALID_LOG_PAGE.dnr())?;
        let log = match page {
            LogPage::Supported => supported(controller.kind),
            LogPage::Error => error_log(controller),
            LogPage::Health => to_vec(&health((cx.health)(), controller)),
            LogPage::Firmware => firmware(&self.config.firmware),
            // It is read by the command that reads its start.
            LogPage::ChangedNamespaces => controller.changed_namespaces(fields.retain || fields.offset > 0),
            LogPage::Effects => {
                let set = CommandSet::of(fields.csi).ok_or(Status::INVALID_FIELD.dnr())?;
                to_vec(&effects(set))
            }
            LogPage::Features => features(),
            LogPage::Discovery => entries,
        };
        part(&log, &fields, page == LogPage::Discovery).map(Reply::data)
    }
}

/// The pages that a kind of controller has.
fn has(kind: Kind, page: LogPage) -> bool {
    match page {
        LogPage::Supported | LogPage::Error => true,
        LogPage::Health
        | LogPage::Firmware
        | LogPage::ChangedNamespaces
        | LogPage::Effects
        | LogPage::Features => kind == Kind::Nvm,
        LogPage::Discovery => kind == Kind::Discovery,
    }
}

/// The part of a page that was asked for; zeroes behind its end. An offset must lie within the page, and at the end
/// only where hosts read until there is no more.
fn part(log: &[u8], fields: &LogFields, up_to_end: bool) -> Result<Vec<u8>, Status> {
    let refused = Status::INVALID_FIELD.dnr();
    let offset = usize::try_from(fields.offset).map_err(|_| refused)?;
    let beyond = offset > log.len() || (offset == log.len() && !up_to_end);
    if beyond || !offset.is_multiple_of(4) {
        return Err(refused);
    }
    let len = usize::try_from(fields.len).map_err(|_| refused)?;
    let rest = &log[offset..];
    let mut part = rest[..len.min(rest.len())].to_vec();
    part.resize(len, 0);
    Ok(part)
}

/// A page of one dword for each number, where those that are named have bit 0 set.
fn numbers(codes: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut page = vec![0; 1024];
    codes.for_each(|code| page[usize::from(code) * 4] = 1);
    page
}

fn supported(kind: Kind) -> Vec<u8> {
    numbers(LogPage::ALL.into_iter().filter(|page| has(kind, *page)).map(LogPage::code))
}

fn features() -> Vec<u8> {
    numbers(Feature::ALL.into_iter().map(Feature::code))
}

fn error_log(controller: &Controller) -> Vec<u8> {
    let mut log: Vec<u8> =
        controller.errors.entries().flat_map(|entry| entry.as_bytes().iter().copied()).collect();
    log.resize((usize::from(ELPE) + 1) * size_of::<ErrorEntry>(), 0);
    log
}

fn health(health: Health, controller: &Controller) -> HealthLog {
    let wide = |value: u64| [U64::new(value), U64::new(0)];
    let mut log: HealthLog = zeroed();
    log.temperature = U16::new(TEMPERATURE);
    log.available_spare = 100;
    log.spare_threshold = 10;
    log.data_units_read = wide(health.read.div_ceil(DATA_UNIT));
    log.data_units_written = wide(health.written.div_ceil(DATA_UNIT));
    log.host_read_commands = wide(health.reads);
    log.host_write_commands = wide(health.writes);
    log.error_log_entries = wide(controller.errors.count());
    log
}

/// One slot, active, with the version of the program.
fn firmware(version: &str) -> Vec<u8> {
    let mut log = vec![0; 512];
    log[0] = 1;
    log[8..16].copy_from_slice(&text::<8>(version, b' '));
    log
}

fn effects(set: CommandSet) -> EffectsLog {
    let mut log: EffectsLog = zeroed();
    for opcode in AdminOpcode::ALL {
        log.admin[usize::from(opcode.code())] = U32::new(EFFECT_SUPPORTED);
    }
    for opcode in IoOpcode::ALL.iter().filter(|opcode| opcode.is_of(set)) {
        // With no other effect than this, hosts let users without privileges send the command.
        let content = if opcode.changes() { EFFECT_CONTENT } else { 0 };
        log.io[usize::from(opcode.code())] = U32::new(EFFECT_SUPPORTED | content);
    }
    log
}
