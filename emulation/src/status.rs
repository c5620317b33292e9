//! How a request ended: the block layer's statuses, and the reasons for which it has no name of its own.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $errno:expr, $why:literal;)*) => {
        /// The end of a request. The first group are the kernel's `BLK_STS_*`; the last are reasons that the
        /// block layer folds into one of those and that the doors tell apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum BlkStatus { $($(#[$doc])* $name,)* }

        impl BlkStatus {
            /// Every status, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name, in upper case, as the kernel writes it behind `BLK_STS_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The positive errno a caller of the block layer sees; 0 for [`BlkStatus::Ok`].
            pub const fn errno(self) -> i32 {
                match self { $(Self::$name => $errno,)* }
            }

            /// What happened, for people.
            pub const fn why(self) -> &'static str {
                match self { $(Self::$name => $why,)* }
            }
        }
    };
}

statuses! {
    /// Done, all of it.
    Ok = "OK", 0, "done";
    /// The device does not do this operation.
    NotSupp = "NOTSUPP", 95, "operation not supported";
    /// Not answered in time.
    Timeout = "TIMEOUT", 110, "timed out";
    /// No space left in the store.
    NoSpc = "NOSPC", 28, "no space left";
    /// The path to the device failed.
    Transport = "TRANSPORT", 67, "recoverable transport error";
    /// The device failed for good.
    Target = "TARGET", 121, "critical target error";
    /// Another initiator holds a reservation.
    ResvConflict = "RESV_CONFLICT", 52, "reservation conflict";
    /// The medium could not be read or written.
    Medium = "MEDIUM", 61, "critical medium error";
    /// Protection information does not fit the data.
    Protection = "PROTECTION", 84, "protection error";
    /// The host is short of a resource.
    Resource = "RESOURCE", 12, "kernel resource error";
    /// The device is short of a resource.
    DevResource = "DEV_RESOURCE", 16, "device resource error";
    /// Would block.
    Again = "AGAIN", 11, "nonblocking retry error";
    /// No further zone can be opened.
    ZoneOpenResource = "ZONE_OPEN_RESOURCE", 109, "open zones exceeded";
    /// No further zone can be active.
    ZoneActiveResource = "ZONE_ACTIVE_RESOURCE", 75, "active zones exceeded";
    /// The device or zone is offline.
    Offline = "OFFLINE", 19, "device offline";
    /// A command duration limit passed.
    DurationLimit = "DURATION_LIMIT", 62, "duration limit exceeded";
    /// The request is malformed.
    Inval = "INVAL", 22, "invalid";
    /// Any other failure.
    IoErr = "IOERR", 5, "I/O error";

    /// Ended by its sender before it was whole.
    Aborted = "ABORTED", 125, "aborted by request";
    /// A range passes the end of its volume.
    OutOfRange = "OUT_OF_RANGE", 22, "beyond the end of the volume";
    /// A write to a read-only volume.
    ReadOnly = "READ_ONLY", 1, "the volume is read-only";
    /// A copy of more bytes in all than `copy_max_bytes` (NVMe MCL).
    CopyMaxBytes = "COPY_MAX_BYTES", 22, "copy longer than copy_max_bytes (MCL)";
    /// A copy segment longer than the limit of one segment (NVMe MSSRL).
    CopyMaxSegmentBytes = "COPY_MAX_SEGMENT_BYTES", 22, "copy segment longer than its limit (MSSRL)";
    /// More copy segments than allowed (NVMe MSRC + 1).
    CopyMaxSegments = "COPY_MAX_SEGMENTS", 22, "too many copy segments (MSRC)";
    /// A destination range of a copy overlaps a source or another destination of the same command.
    CopyOverlap = "COPY_OVERLAP", 22, "copy ranges overlap";
    /// `FAST_ONLY` asked for, and some bytes would have to be moved.
    CopyNotFast = "COPY_NOT_FAST", 95, "fast copy not possible";
    /// Source and destination differ in logical block size.
    CopyIncompatible = "COPY_INCOMPATIBLE", 22, "volumes differ in logical block size";
    /// A write that passes the end of its zone (NVMe 1B8h).
    ZoneBoundary = "ZONE_BOUNDARY", 5, "beyond the end of the zone";
    /// A write to a full zone (NVMe 1B9h).
    ZoneFull = "ZONE_FULL", 5, "the zone is full";
    /// A write to a zone that became read-only (NVMe 1BAh).
    ZoneReadonly = "ZONE_READONLY", 5, "the zone is read-only";
    /// A request for a zone that went offline (NVMe 1BBh).
    ZoneOffline = "ZONE_OFFLINE", 5, "the zone is offline";
    /// A write that is not at the write pointer (NVMe 1BCh).
    ZoneInvalidWrite = "ZONE_INVALID_WRITE", 5, "not at the zone's write pointer";
    /// An action that the zone's condition does not allow (NVMe 1BFh).
    ZoneTransition = "ZONE_TRANSITION", 5, "the zone's condition does not allow it";
    /// An append that does not name the start of a sequential zone, or is too long for one append.
    ZoneAppend = "ZONE_APPEND", 5, "not an append to the start of a sequential zone, or too long for one";
    /// The named volume does not exist in this pool.
    NoVolume = "NO_VOLUME", 6, "no such volume in this pool";
}

impl BlkStatus {
    /// True for [`BlkStatus::Ok`].
    pub fn is_ok(self) -> bool {
        self == Self::Ok
    }

    /// True when a copy command was refused for its size, whichever limit it passes.
    pub fn is_copy_limit(self) -> bool {
        matches!(self, Self::CopyMaxBytes | Self::CopyMaxSegmentBytes | Self::CopyMaxSegments)
    }

    /// The status for a positive errno, as the kernel's table has it; `IoErr` for one without an entry.
    pub fn from_errno(errno: i32) -> Self {
        Self::ALL.iter().copied().find(|status| status.errno() == errno).unwrap_or(Self::IoErr)
    }
}

impl fmt::Display for BlkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_statuses_survive_the_way_through_errno() {
        for &status in BlkStatus::ALL.iter().filter(|status| **status <= BlkStatus::IoErr) {
            assert_eq!(BlkStatus::from_errno(status.errno()), status);
        }
    }

    #[test]
    fn an_unknown_errno_is_an_io_error_and_every_failure_has_an_errno() {
        assert_eq!(BlkStatus::from_errno(9999), BlkStatus::IoErr);
        for &status in BlkStatus::ALL {
            assert_eq!(status.errno() == 0, status.is_ok());
        }
    }
}
