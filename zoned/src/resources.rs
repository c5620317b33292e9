//! The limits on open and active zones, and the counts that they bound.

use crate::rules::Needs;
use emulation::BlkStatus;
use emulation::zone::{ZoneCondition, ZoneGeometry};

/// How many zones of a volume are open and active, and how many may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    /// The most open and active zones; `u32::MAX` for no limit.
    max_open: u32,
    max_active: u32,
    implicit: u32,
    explicit: u32,
    closed: u32,
}

/// Whether there is room for another open zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is.
    Free,
    /// Once one that was opened implicitly is closed.
    CloseOne,
}

impl Resources {
    /// No zone is open.
    pub(crate) fn new(geometry: &ZoneGeometry) -> Self {
        let limit = |most: u32| if most == 0 { u32::MAX } else { most };
        let (max_open, max_active) = (limit(geometry.max_open), limit(geometry.max_active));
        Self { max_open, max_active, implicit: 0, explicit: 0, closed: 0 }
    }

    /// Open zones.
    pub(crate) fn open(&self) -> u32 {
        self.implicit + self.explicit
    }

    /// Active zones.
    pub(crate) fn active(&self) -> u32 {
        self.open() + self.closed
    }

    /// True when some zone was opened implicitly and is open.
    pub(crate) fn has_implicit(&self) -> bool {
        self.implicit > 0
    }

    /// True when neither limit is exceeded.
    pub(crate) fn within_limits(&self) -> bool {
        self.open() <= self.max_open && self.active() <= self.max_active
    }

    /// Says whether a zone that needs this can be opened. Where both limits are reached, the active one is named.
    pub(crate) fn room(&self, needs: Needs) -> Result<Room, BlkStatus> {
        match needs {
            Needs::Nothing => Ok(Room::Free),
            Needs::ActiveAndOpen if self.active() >= self.max_active => Err(BlkStatus::ZoneActiveResource),
            Needs::Open | Needs::ActiveAndOpen if self.open() < self.max_open => Ok(Room::Free),
            Needs::Open | Needs::ActiveAndOpen if self.implicit > 0 => Ok(Room::CloseOne),
            Needs::Open | Needs::ActiveAndOpen => Err(BlkStatus::ZoneOpenResource),
        }
    }

    /// A zone goes from one condition to another.
    pub(crate) fn change(&mut self, from: ZoneCondition, to: ZoneCondition) {
        if let Some(count) = self.count(from) {
            *count -= 1;
        }
        if let Some(count) = self.count(to) {
            *count += 1;
        }
    }

    fn count(&mut self, condition: ZoneCondition) -> Option<&mut u32> {
        match condition {
            ZoneCondition::ImpOpen => Some(&mut self.implicit),
            ZoneCondition::ExpOpen => Some(&mut self.explicit),
            ZoneCondition::Closed => Some(&mut self.closed),
            ZoneCondition::NotWp
            | ZoneCondition::Empty
            | ZoneCondition::Readonly
            | ZoneCondition::Full
            | ZoneCondition::Offline => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::Sectors;
    use emulation::zone::ZoneCondition::{Closed, Empty, ExpOpen, ImpOpen};

    fn resources(max_open: u32, max_active: u32, zones: &[ZoneCondition]) -> Resources {
        let geometry = ZoneGeometry { max_open, max_active, ..ZoneGeometry::new(Sectors(2048)) };
        let mut resources = Resources::new(&geometry);
        zones.iter().for_each(|&to| resources.change(Empty, to));
        assert!(resources.within_limits());
        resources
    }

    #[test]
    fn only_an_implicitly_opened_zone_gives_room() {
        let open = |zones: &[_]| resources(2, 0, zones).room(Needs::Open);
        assert_eq!(open(&[ExpOpen, Closed]), Ok(Room::Free));
        assert_eq!(open(&[ExpOpen, ImpOpen]), Ok(Room::CloseOne));
        assert_eq!(open(&[ExpOpen, ExpOpen]), Err(BlkStatus::ZoneOpenResource));
    }

    #[test]
    fn no_active_zone_is_given_up_for_another() {
        let both = |zones: &[_]| resources(1, 2, zones).room(Needs::ActiveAndOpen);
        assert_eq!(both(&[Closed]), Ok(Room::Free));
        assert_eq!(both(&[ImpOpen]), Ok(Room::CloseOne));
        assert_eq!(both(&[ImpOpen, Closed]), Err(BlkStatus::ZoneActiveResource));
        assert_eq!(both(&[ExpOpen]), Err(BlkStatus::ZoneOpenResource));
    }

    #[test]
    fn a_closed_zone_opens_though_no_other_could_be_active() {
        assert_eq!(resources(1, 2, &[ImpOpen, Closed]).room(Needs::Open), Ok(Room::CloseOne));
    }

    #[test]
    fn zero_is_no_limit() {
        let many = [ImpOpen, ExpOpen, Closed].repeat(1000);
        assert_eq!(resources(0, 0, &many).room(Needs::ActiveAndOpen), Ok(Room::Free));
        assert_eq!(resources(0, 0, &many).active(), 3000);
    }
}
