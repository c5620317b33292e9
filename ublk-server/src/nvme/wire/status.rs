//! Status codes: what a completion says of its command.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            fn text(self) -> Option<&'static str> {
                match self.code() { $($code => Some($text),)* _ => None }
            }
        }
    };
}

/// The status of a completion: code type in bits 10:8, code in bits 7:0, and bit 14 for "do not retry".
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

statuses! {
    /// Done.
    SUCCESS = 0x000, "success";
    /// No such command here.
    INVALID_OPCODE = 0x001, "invalid command opcode";
    /// A field has a value that is not supported.
    INVALID_FIELD = 0x002, "invalid field in command";
    /// The command identifier belongs to another command that is under way.
    COMMAND_ID_CONFLICT = 0x003, "command ID conflict";
    /// Data could not be moved.
    DATA_TRANSFER_ERROR = 0x004, "data transfer error";
    /// The controller failed.
    INTERNAL_ERROR = 0x006, "internal error";
    /// Ended by Abort.
    ABORT_REQUESTED = 0x007, "command abort requested";
    /// No such namespace.
    INVALID_NAMESPACE = 0x00b, "invalid namespace or format";
    /// Not in this order.
    COMMAND_SEQUENCE_ERROR = 0x00c, "command sequence error";
    /// The SGL is shorter or longer than the data of the command.
    DATA_SGL_LENGTH_INVALID = 0x00f, "data SGL length invalid";
    /// An SGL of another kind is needed.
    SGL_TYPE_INVALID = 0x011, "SGL descriptor type invalid";
    /// In-capsule data outside of the capsule.
    SGL_OFFSET_INVALID = 0x016, "SGL offset invalid";
    /// Another host has this identifier.
    HOST_ID_INCONSISTENT = 0x018, "host identifier inconsistent format";
    /// The keep alive timer ran out.
    KEEP_ALIVE_EXPIRED = 0x019, "keep alive timeout expired";
    /// The namespace is write protected.
    WRITE_PROTECTED = 0x020, "namespace is write protected";
    /// Not now; may be retried.
    COMMAND_INTERRUPTED = 0x021, "command interrupted";
    /// The transport failed; may be retried.
    TRANSIENT_TRANSPORT = 0x022, "transient transport error";
    /// Beyond the end of the namespace.
    LBA_OUT_OF_RANGE = 0x080, "LBA out of range";
    /// The store is full.
    CAPACITY_EXCEEDED = 0x081, "capacity exceeded";
    /// The namespace is not ready.
    NAMESPACE_NOT_READY = 0x082, "namespace not ready";
    /// Another host holds a reservation.
    RESERVATION_CONFLICT = 0x083, "reservation conflict";
    /// More Asynchronous Event Requests than AERL allows.
    AER_LIMIT_EXCEEDED = 0x105, "asynchronous event request limit exceeded";
    /// No such log page.
    INVALID_LOG_PAGE = 0x109, "invalid log page";
    /// The feature cannot be saved.
    FEATURE_NOT_SAVEABLE = 0x10d, "feature identifier not saveable";
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 0x10e, "feature not changeable";
    /// The command set is not supported.
    COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O command set not supported";
    /// The combination of command sets was refused.
    COMMAND_SETS_REJECTED = 0x12b, "I/O command set combination rejected";
    /// Connect: the record format is not supported.
    CONNECT_FORMAT = 0x180, "connect: incompatible format";
    /// Connect: the controller has this queue, or no controller is left.
    CONNECT_CTRL_BUSY = 0x181, "connect: controller busy";
    /// Connect: a field makes no sense; the result says which.
    CONNECT_INVALID_PARAM = 0x182, "connect: invalid parameters";
    /// Connect: this host may not.
    CONNECT_INVALID_HOST = 0x184, "connect: invalid host";
    /// Copy: more ranges, blocks in one range or blocks in all than the namespace takes.
    COMMAND_SIZE_LIMIT = 0x183, "command size limit exceeded";
    /// Copy: source and destination do not fit each other.
    INCOMPATIBLE_NAMESPACE = 0x185, "incompatible namespace or format";
    /// Copy: some bytes would have to be moved.
    FAST_COPY_NOT_POSSIBLE = 0x186, "fast copy not possible";
    /// Copy: source and destination overlap.
    OVERLAPPING_RANGE = 0x187, "overlapping I/O range";
    /// A write that passes the end of its zone.
    ZONE_BOUNDARY = 0x1b8, "zone boundary error";
    /// A write to a full zone.
    ZONE_FULL = 0x1b9, "zone is full";
    /// A write to a read-only zone.
    ZONE_READ_ONLY = 0x1ba, "zone is read only";
    /// A request for an offline zone.
    ZONE_OFFLINE = 0x1bb, "zone is offline";
    /// A write that is not at the write pointer.
    ZONE_INVALID_WRITE = 0x1bc, "zone invalid write";
    /// No further zone can be active.
    TOO_MANY_ACTIVE_ZONES = 0x1bd, "too many active zones";
    /// No further zone can be open.
    TOO_MANY_OPEN_ZONES = 0x1be, "too many open zones";
    /// The zone's condition does not allow the action.
    ZONE_TRANSITION = 0x1bf, "invalid zone state transition";
    /// The medium could not be written.
    WRITE_FAULT = 0x280, "write fault";
    /// The medium could not be read.
    UNRECOVERED_READ = 0x281, "unrecovered read error";
    /// Protection information does not fit.
    GUARD_CHECK = 0x282, "end-to-end guard check error";
    /// Compare: the data differs.
    COMPARE_FAILURE = 0x285, "compare failure";
}

impl Status {
    const DNR: u16 = 1 << 14;

    /// The same, and a retry would fail too.
    #[must_use]
    pub const fn dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }

    /// Code type and code, without the flags.
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Do not retry.
    pub const fn is_final(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// True for success.
    pub const fn is_ok(self) -> bool {
        self.code() == 0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let final_ = if self.is_final() { ", do not retry" } else { "" };
        write!(f, "{:03x}h ({}{final_})", self.code(), self.text().unwrap_or("unknown"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:03x}h)", self.text().unwrap_or("unknown status"), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_does_not_change_the_code() {
        let status = Status::COMMAND_SIZE_LIMIT.dnr();
        assert_eq!((status.code(), status.is_final(), status.is_ok()), (0x183, true, false));
        assert_eq!(status.to_string(), "command size limit exceeded (183h)");
        assert!(Status::SUCCESS.is_ok() && !Status::SUCCESS.is_final());
    }
}
