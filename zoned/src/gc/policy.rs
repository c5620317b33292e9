//! Which zone is collected, and which pages share a zone.

use std::fmt;

/// How the zone to collect is chosen among the full ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The zone with the fewest live pages, of several the one that came to be so last. The choice among equals matters
    /// where some pages are colder than others: this one does not favour the zones that have waited longest, which
    /// would be a bit of cost-benefit.
    Greedy,
    /// The zone of highest `(1 - u) * age / (1 + u)`, where `u` is its live share and `age` the time since its newest
    /// page was written by the user (Rosenblum and Ousterhout). Pages keep their time when they are moved.
    CostBenefit,
    /// The zone that was filled first.
    Fifo,
    /// The zone with the fewest live pages of `d` drawn at random, with repetition.
    DChoices {
        /// How many are drawn.
        d: u32,
    },
    /// The zone with the fewest live pages among the `window` that were filled first.
    WindowedGreedy {
        /// Zones looked at.
        window: u32,
    },
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greedy => write!(f, "greedy"),
            Self::CostBenefit => write!(f, "cost-benefit"),
            Self::Fifo => write!(f, "FIFO"),
            Self::DChoices { d } => write!(f, "{d}-choices"),
            Self::WindowedGreedy { window } => write!(f, "greedy in a window of {window}"),
        }
    }
}

/// Which pages are written to the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All.
    OneLog,
    /// What the user writes, and what the collector moves.
    GcLog,
    /// Pages below `hot_pages`, and the others, by whomever they are written: an oracle knows which are hot.
    HotCold {
        /// The first page that is cold.
        hot_pages: u32,
    },
}

impl Layout {
    /// Logs, each with an open zone of its own.
    pub const fn logs(self) -> u32 {
        match self {
            Self::OneLog => 1,
            Self::GcLog | Self::HotCold { .. } => 2,
        }
    }

    /// Zones are collected until so many are free.
    pub const fn reserve(self) -> u32 {
        match self {
            Self::OneLog => 2,
            Self::GcLog | Self::HotCold { .. } => 5,
        }
    }

    /// The log of a page that the user writes.
    pub(super) fn user_log(self, page: u32) -> usize {
        match self {
            Self::OneLog | Self::GcLog => 0,
            Self::HotCold { hot_pages } => usize::from(page >= hot_pages),
        }
    }

    /// The log of a page that is moved.
    pub(super) fn gc_log(self, page: u32) -> usize {
        match self {
            Self::OneLog => 0,
            Self::GcLog => 1,
            Self::HotCold { hot_pages } => usize::from(page >= hot_pages),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneLog => write!(f, "one log"),
            Self::GcLog => write!(f, "GC log apart"),
            Self::HotCold { .. } => write!(f, "hot and cold apart"),
        }
    }
}
