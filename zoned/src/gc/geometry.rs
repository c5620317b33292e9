//! The size of a log and what it keeps spare.

use super::policy::Layout;
use std::fmt;

/// How many pages there are, and how many of them the user sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Pages that the user may write, `U`.
    pub pages: u32,
    /// Zones that pages are written to.
    pub zones: u32,
    /// Pages of a zone's capacity.
    pub zone_pages: u32,
}

/// Why a log cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A count of 0.
    #[error("{0} is 0: pages, zones and pages a zone must be at least 1")]
    Zero(&'static str),
    /// More slots than can be numbered.
    #[error(
        "{zones} zones of {zone_pages} pages: at most 2^31 pages, each zone rounded up to a power of two"
    )]
    TooLarge {
        /// Zones asked for.
        zones: u32,
        /// Pages of each.
        zone_pages: u32,
    },
    /// No room to collect.
    #[error(
        "{pages} pages in {zones} zones of {zone_pages} leave the collector no room: at most {most} pages \
         with {reserve} zones in reserve and {logs} open"
    )]
    TooFull {
        /// Pages asked for.
        pages: u32,
        /// Zones.
        zones: u32,
        /// Pages of each.
        zone_pages: u32,
        /// The most pages.
        most: u64,
        /// Zones kept free.
        reserve: u32,
        /// Logs, each with an open zone.
        logs: u32,
    },
}

impl Geometry {
    /// So many zones with `percent` of over-provisioning: `U = T / (1 + percent / 100)`, rounded down.
    pub fn with_over_provisioning(zones: u32, zone_pages: u32, percent: u32) -> Self {
        let pages = u64::from(zones) * u64::from(zone_pages) * 100 / (100 + u64::from(percent));
        Self { pages: u32::try_from(pages).unwrap_or(u32::MAX), zones, zone_pages }
    }

    /// All pages, `T`.
    pub fn total(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.zone_pages)
    }

    /// `T / U`.
    pub fn ratio(&self) -> f64 {
        to_f64(self.total()) / f64::from(self.pages)
    }

    /// Refuses what could never work with a layout.
    ///
    /// # Errors
    /// The first reason.
    pub fn validate(&self, layout: Layout) -> Result<(), GeometryError> {
        let Self { pages, zones, zone_pages } = *self;
        for (name, count) in [("pages", pages), ("zones", zones), ("pages a zone", zone_pages)] {
            if count == 0 {
                return Err(GeometryError::Zero(name));
            }
        }
        let slots = zone_pages.checked_next_power_of_two().and_then(|stride| stride.checked_mul(zones));
        if slots.is_none_or(|slots| slots > 1 << 31) {
            return Err(GeometryError::TooLarge { zones, zone_pages });
        }
        // Every log may hold an open zone that is just begun, and at least one page has to be dead in the full ones.
        let (reserve, logs) = (layout.reserve(), layout.logs());
        let most = u64::from(zones.saturating_sub(reserve + logs)) * u64::from(zone_pages);
        if u64::from(pages) >= most {
            let most = most.saturating_sub(1);
            return Err(GeometryError::TooFull { pages, zones, zone_pages, most, reserve, logs });
        }
        Ok(())
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pages, zones, zone_pages } = self;
        let ratio = self.ratio();
        write!(
            f,
            "{pages} user pages in {zones} zones of {zone_pages}: over-provisioning {:.2} % (T/U - 1, all zones counted), \
             spare share {:.2} % (1 - U/T)",
            (ratio - 1.0) * 100.0,
            (1.0 - 1.0 / ratio) * 100.0,
        )
    }
}

/// Counts of pages stay far below the 2^53 that an `f64` holds exactly.
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_provisioning_is_spare_pages_over_user_pages() {
        let geometry = Geometry::with_over_provisioning(4096, 64, 28);
        assert_eq!((geometry.total(), geometry.pages), (262_144, 204_800));
        assert_eq!(
            geometry.to_string(),
            "204800 user pages in 4096 zones of 64: over-provisioning 28.00 % (T/U - 1, all zones counted), \
             spare share 21.88 % (1 - U/T)"
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_can() {
        let check = |pages, zones, zone_pages| Geometry { pages, zones, zone_pages }.validate(Layout::OneLog);
        assert_eq!(check(0, 8, 4), Err(GeometryError::Zero("pages")));
        assert_eq!(check(1, 8, 0), Err(GeometryError::Zero("pages a zone")));
        assert_eq!(check(19, 8, 4), Ok(()));
        let refused = check(20, 8, 4).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "20 pages in 8 zones of 4 leave the collector no room: at most 19 pages with 2 zones in reserve and 1 open"
        );
        assert_eq!(
            check(1, 1, 1).unwrap_err().to_string().split(':').next_back(),
            Some(" at most 0 pages with 2 zones in reserve and 1 open")
        );
        assert!(matches!(check(1, 1 << 20, 1 << 12), Err(GeometryError::TooLarge { .. })));
        assert!(matches!(check(1, u32::MAX, u32::MAX), Err(GeometryError::TooLarge { .. })));
    }
}
