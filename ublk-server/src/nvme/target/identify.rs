//! Identify.

use super::controller::{AERL, Controller, ELPE, KAS, Kind, VERSION};
use super::subsystem::{Namespace, SubsystemConfig, Target};
use super::{IN_CAPSULE_MAX, MDTS, NAMESPACES_MAX, QUEUE_ENTRIES_MAX, Reply};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::copy::CopyFormat;
use crate::nvme::wire::fabrics::DISCOVERY_NQN;
use crate::nvme::wire::identify::{
    Cns, CommandSet, DescriptorType, IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm,
    IdentifyNamespace, IdentifyNamespaceIndependent, NSID_ALL, bits, put_descriptor,
};
use crate::nvme::wire::status::Status;
use crate::nvme::wire::zone::{IdentifyControllerZoned, IdentifyNamespaceZoned, NO_LIMIT, OZCS_READ_ACROSS};
use crate::nvme::wire::{text, to_vec, zeroed};
use emulation::zone::ZoneGeometry;
use emulation::{CopyMode, Limits};
use zerocopy::little_endian::{U16, U32, U64};

/// The model number.
const MODEL: &str = "ublk copy-offload disk";
/// The most blocks of Write Zeroes, 65,536 of the smallest, in pages of 4 KiB as a power of two (WZSL).
const WZSL: u8 = 13;

impl Target {
    pub(super) fn identify(&self, cntlid: u16, sqe: &Sqe) -> Result<Reply, Status> {
        let controller = self.controllers.get(&cntlid).ok_or(Status::INTERNAL_ERROR.dnr())?;
        let cns = Cns::of(sqe.cdw10.to_bytes()[0]).ok_or(Status::INVALID_FIELD.dnr())?;
        let csi = sqe.cdw11.to_bytes()[3];
        let nsid = sqe.nsid.get();
        if controller.kind == Kind::Discovery && cns != Cns::Controller {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let data = match cns {
            Cns::Controller => to_vec(&self.identify_controller(controller)),
            Cns::Namespace => match self.active(nsid)? {
                Some(namespace) => to_vec(&identify_namespace(namespace)),
                None => vec![0; IDENTIFY_LEN],
            },
            Cns::NamespaceIndependent => match self.active(nsid)? {
                Some(namespace) => to_vec(&self.identify_independent(namespace)),
                None => vec![0; IDENTIFY_LEN],
            },
            Cns::NamespaceDescriptors => descriptors(self.namespaces.named(nsid)?),
            Cns::ActiveNamespaces | Cns::AllocatedNamespaces => self.list(nsid, None)?,
            Cns::ActiveNamespacesOfSet => self.list(nsid, Some(known(csi)?))?,
            Cns::NamespaceOfSet => self.namespace_of_set(nsid, known(csi)?)?,
            Cns::ControllerOfSet => match known(csi)? {
                CommandSet::Nvm => to_vec(&identify_controller_nvm()),
                CommandSet::Zoned => to_vec(&self.identify_controller_zoned()),
            },
            Cns::CommandSets => command_sets(),
        };
        Ok(Reply::data(data))
    }

    /// A namespace; `None` for a number that is not in use.
    fn active(&self, nsid: u32) -> Result<Option<&Namespace>, Status> {
        match nsid {
            1..=NAMESPACES_MAX => Ok(self.namespaces.get(nsid)),
            _ => Err(Status::INVALID_NAMESPACE.dnr()),
        }
    }

    /// What a command set says of a namespace.
    fn namespace_of_set(&self, nsid: u32, set: CommandSet) -> Result<Vec<u8>, Status> {
        let namespace = self.active(nsid)?;
        let zones = namespace.and_then(|namespace| Some((namespace, namespace.limits.zones?)));
        match (set, zones) {
            // The NVM command set adds only protection information, which there is none of.
            (CommandSet::Nvm, _) => Ok(vec![0; IDENTIFY_LEN]),
            (CommandSet::Zoned, Some((namespace, zones))) => {
                Ok(to_vec(&identify_namespace_zoned(&namespace.limits, &zones)))
            }
            (CommandSet::Zoned, None) if namespace.is_none() => Ok(vec![0; IDENTIFY_LEN]),
            (CommandSet::Zoned, None) => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    /// The active namespaces with higher numbers, of one command set or of any.
    fn list(&self, above: u32, set: Option<CommandSet>) -> Result<Vec<u8>, Status> {
        if above >= NSID_ALL - 1 {
            return Err(Status::INVALID_NAMESPACE.dnr());
        }
        let mut list = vec![0; IDENTIFY_LEN];
        let higher = self.namespaces.iter().filter(|namespace| {
            namespace.nsid > above && set.is_none_or(|set| namespace.command_set() == set)
        });
        for (entry, namespace) in list.chunks_exact_mut(4).zip(higher) {
            entry.copy_from_slice(&namespace.nsid.to_le_bytes());
        }
        Ok(list)
    }

    fn identify_controller(&self, controller: &Controller) -> IdentifyController {
        let mut id: IdentifyController = zeroed();
        let config = &self.config;
        id.sn = text(&config.serial, b' ');
        id.mn = text(MODEL, b' ');
        id.fr = text(&config.firmware, b' ');
        id.mdts = MDTS;
        id.cntlid = U16::new(controller.id);
        id.ver = U32::new(VERSION);
        id.ctratt = U32::new(bits::CTRATT_HOSTID_128);
        id.aerl = AERL;
        id.elpe = ELPE;
        // One firmware slot, read-only.
        id.frmw = 1 | 1 << 1;
        id.lpa = bits::LPA_EXTENDED;
        id.kas = U16::new(KAS);
        id.maxcmd = U16::new(QUEUE_ENTRIES_MAX);
        id.sgls = U32::new(bits::SGLS_SUPPORTED | bits::SGLS_OFFSET);
        id.ioccsz = U32::new((64 + IN_CAPSULE_MAX) / 16);
        id.iorcsz = U32::new(1);
        id.msdbd = 1;
        match controller.kind {
            Kind::Nvm => self.identify_nvm(config, &mut id),
            Kind::Discovery => {
                id.cntrltype = 2;
                id.subnqn = text(DISCOVERY_NQN, 0);
            }
        }
        id
    }

    fn identify_nvm(&self, config: &SubsystemConfig, id: &mut IdentifyController) {
        let copies = self.namespaces.iter().any(|namespace| namespace.limits.copy_mode != CopyMode::Off);
        id.cntrltype = 1;
        id.subnqn = text(&config.nqn, 0);
        id.oaes = U32::new(bits::OAES_NAMESPACE);
        id.acl = 3;
        id.lpa = bits::LPA_EFFECTS | bits::LPA_EXTENDED;
        id.sqes = 0x66;
        id.cqes = 0x44;
        id.nn = U32::new(NAMESPACES_MAX);
        id.mnan = U32::new(NAMESPACES_MAX);
        let copy = if copies { bits::ONCS_COPY } else { 0 };
        id.oncs = U16::new(
            bits::ONCS_COMPARE | bits::ONCS_DSM | bits::ONCS_WRITE_ZEROES | bits::ONCS_VERIFY | copy,
        );
        id.ocfs = U16::new(if copies { CopyFormat::OCFS } else { 0 });
        id.vwc = if config.volatile_cache { bits::VWC_PRESENT } else { bits::VWC_NONE };
    }

    /// The longest append is one for all: that of the namespace that takes the least, rounded down to what can be said.
    fn identify_controller_zoned(&self) -> IdentifyControllerZoned {
        let longest = self.namespaces.iter().filter_map(|namespace| Some(namespace.limits.zones?.max_append));
        let pages = longest.min().map_or(0, |sectors| sectors.bytes().0 / 4096);
        let mut id: IdentifyControllerZoned = zeroed();
        id.zasl = u8::try_from(pages.checked_ilog2().unwrap_or(0)).unwrap_or(MDTS).min(MDTS);
        id
    }

    fn identify_independent(&self, namespace: &Namespace) -> IdentifyNamespaceIndependent {
        let mut id: IdentifyNamespaceIndependent = zeroed();
        id.nsfeat = if self.config.volatile_cache { 0 } else { bits::NSFEAT_NO_VWC };
        id.nsattr = write_protected(namespace);
        id.nstat = bits::NSTAT_READY;
        id
    }
}

fn known(csi: u8) -> Result<CommandSet, Status> {
    CommandSet::of(csi).ok_or(Status::INVALID_FIELD.dnr())
}

fn write_protected(namespace: &Namespace) -> u8 {
    if namespace.limits.read_only { bits::NSATTR_WRITE_PROTECTED } else { 0 }
}

fn identify_namespace(namespace: &Namespace) -> IdentifyNamespace {
    let mut id: IdentifyNamespace = zeroed();
    let limits = &namespace.limits;
    let blocks = limits.capacity.0 / limits.logical_block.0;
    id.nsze = U64::new(blocks);
    let usable = limits.zones.map_or(blocks, |zones| {
        u64::from(zones.zones(limits.capacity)) * zones.capacity.0 / limits.logical_block.0
    });
    id.ncap = U64::new(usable);
    id.nuse = U64::new(usable);
    id.nsfeat = bits::NSFEAT_OPTPERF;
    id.dlfeat = bits::DLFEAT_ZEROES;
    id.nvmcap[..8].copy_from_slice(&limits.capacity.bytes().0.to_le_bytes());
    // Whole map blocks are written and discarded best, counted from 0.
    let best = u16::try_from(limits.map_block.0 / limits.logical_block.0 - 1).unwrap_or(u16::MAX);
    id.npwg = U16::new(best);
    id.npwa = U16::new(best);
    id.npdg = U16::new(best);
    id.npda = U16::new(best);
    let copy = CopyLimits::of(limits);
    id.mssrl = U16::new(copy.mssrl);
    id.mcl = U32::new(copy.mcl);
    id.msrc = copy.msrc;
    id.nsattr = write_protected(namespace);
    id.nguid = namespace.nguid;
    let lbads = limits.logical_block.bytes().0.trailing_zeros();
    id.lbaf[0] = IdentifyNamespace::format(u8::try_from(lbads).unwrap_or(u8::MAX));
    id
}

/// The limits of Copy as a namespace says them, in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyLimits {
    mssrl: u16,
    mcl: u32,
    msrc: u8,
}

impl CopyLimits {
    /// All 0 when copies are switched off.
    fn of(limits: &Limits) -> Self {
        if limits.copy_mode == CopyMode::Off {
            return Self { mssrl: 0, mcl: 0, msrc: 0 };
        }
        let block = limits.logical_block.bytes().0;
        Self {
            mssrl: u16::try_from(limits.copy_max_segment_bytes.0 / block).unwrap_or(u16::MAX),
            mcl: u32::try_from(limits.copy_max_bytes.0 / block).unwrap_or(u32::MAX),
            msrc: u8::try_from(limits.copy_max_segments.saturating_sub(1)).unwrap_or(u8::MAX),
        }
    }
}

fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut list = Vec::with_capacity(IDENTIFY_LEN);
    put_descriptor(&mut list, DescriptorType::Uuid, &namespace.uuid);
    put_descriptor(&mut list, DescriptorType::Nguid, &namespace.nguid);
    put_descriptor(&mut list, DescriptorType::CommandSet, &[namespace.command_set().code()]);
    list.resize(IDENTIFY_LEN, 0);
    list
}

fn identify_controller_nvm() -> IdentifyControllerNvm {
    let mut id: IdentifyControllerNvm = zeroed();
    id.vsl = MDTS;
    id.wzsl = WZSL;
    id
}

fn identify_namespace_zoned(limits: &Limits, zones: &ZoneGeometry) -> IdentifyNamespaceZoned {
    let mut id: IdentifyNamespaceZoned = zeroed();
    // Counted from 0; 0 zones here are no limit.
    let limit = |most: u32| U32::new(most.checked_sub(1).unwrap_or(NO_LIMIT));
    id.ozcs = U16::new(OZCS_READ_ACROSS);
    id.mar = limit(zones.max_active);
    id.mor = limit(zones.max_open);
    id.lbafe[0].zsze = U64::new(zones.size.0 / limits.logical_block.0);
    id
}

/// The combinations of command sets: one, of both.
fn command_sets() -> Vec<u8> {
    let mut list = vec![0; IDENTIFY_LEN];
    list[0] = 1 << CommandSet::Nvm.code() | 1 << CommandSet::Zoned.code();
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::{Bytes, Sectors};

    #[test]
    fn copy_limits_are_those_of_the_volume_in_blocks() {
        let mut limits = Limits::new(Sectors(1 << 21), Sectors(8), Sectors(8));
        limits.copy_max_segment_bytes = Bytes(65_535 * 4096);
        limits.copy_max_bytes = Bytes::mib(128);
        limits.copy_max_segments = 256;
        assert_eq!(CopyLimits::of(&limits), CopyLimits { mssrl: 65_535, mcl: 32_768, msrc: 255 });
        limits.copy_max_bytes = Bytes(1 << 60);
        limits.copy_max_segments = 1;
        assert_eq!(CopyLimits::of(&limits), CopyLimits { mssrl: 65_535, mcl: u32::MAX, msrc: 0 });
        limits.copy_mode = CopyMode::Off;
        assert_eq!(CopyLimits::of(&limits), CopyLimits { mssrl: 0, mcl: 0, msrc: 0 });
    }
}
