//! The discovery log page.

use super::QUEUE_ENTRIES_MAX;
use super::subsystem::Target;
use crate::nvme::wire::fabrics::CNTLID_DYNAMIC;
use crate::nvme::wire::log::{
    ADRFAM_IPV4, ADRFAM_IPV6, DiscoveryEntry, DiscoveryHeader, SUBTYPE_NVM, TREQ, TRTYPE_TCP,
};
use crate::nvme::wire::{text, to_vec, zeroed};
use std::net::SocketAddr;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

impl Target {
    /// The page as the host of a controller sees it: the portals of the subsystem, if it may use them. One that
    /// listens on every address is named by that at which this host reached us.
    pub(super) fn discovery_log(&self, local: SocketAddr, cntlid: u16) -> Vec<u8> {
        let allowed =
            self.controllers.get(&cntlid).is_some_and(|controller| self.allows(&controller.host_nqn));
        let portals: &[SocketAddr] = if allowed { &self.config.portals } else { &[] };
        let mut header: DiscoveryHeader = zeroed();
        header.genctr = U64::new(1);
        header.numrec = U64::new(portals.len() as u64);
        let mut log = to_vec(&header);
        for (portal, portid) in portals.iter().zip(1u16..) {
            log.extend_from_slice(self.entry(*portal, local, portid).as_bytes());
        }
        log
    }

    fn entry(&self, portal: SocketAddr, local: SocketAddr, portid: u16) -> DiscoveryEntry {
        let address = if portal.ip().is_unspecified() { local.ip() } else { portal.ip() };
        let mut entry: DiscoveryEntry = zeroed();
        entry.trtype = TRTYPE_TCP;
        entry.adrfam = if address.is_ipv4() { ADRFAM_IPV4 } else { ADRFAM_IPV6 };
        entry.subtype = SUBTYPE_NVM;
        entry.treq = TREQ;
        entry.portid = U16::new(portid);
        entry.cntlid = U16::new(CNTLID_DYNAMIC);
        entry.asqsz = U16::new(QUEUE_ENTRIES_MAX);
        entry.trsvcid = text(&portal.port().to_string(), b' ');
        entry.subnqn = text(&self.config.nqn, 0);
        entry.traddr = text(&address.to_string(), b' ');
        entry
    }
}
