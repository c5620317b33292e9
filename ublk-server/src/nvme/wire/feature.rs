//! Features: what Get Features and Set Features are about.

use super::copy::CopyFormat;

/// The supported features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Arbitration.
    Arbitration,
    /// Power management.
    PowerManagement,
    /// Temperature threshold.
    TemperatureThreshold,
    /// Volatile write cache.
    VolatileWriteCache,
    /// Number of queues.
    NumberOfQueues,
    /// Write atomicity normal.
    WriteAtomicity,
    /// Asynchronous event configuration.
    AsyncEventConfiguration,
    /// Keep alive timer.
    KeepAliveTimer,
    /// Host behavior support.
    HostBehaviorSupport,
    /// I/O command set profile.
    CommandSetProfile,
    /// Host identifier.
    HostIdentifier,
}

impl Feature {
    /// All of them, in rising order.
    pub const ALL: [Self; 11] = [
        Self::Arbitration,
        Self::PowerManagement,
        Self::TemperatureThreshold,
        Self::VolatileWriteCache,
        Self::NumberOfQueues,
        Self::WriteAtomicity,
        Self::AsyncEventConfiguration,
        Self::KeepAliveTimer,
        Self::HostBehaviorSupport,
        Self::CommandSetProfile,
        Self::HostIdentifier,
    ];

    /// The feature identifier on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Arbitration => 0x01,
            Self::PowerManagement => 0x02,
            Self::TemperatureThreshold => 0x04,
            Self::VolatileWriteCache => 0x06,
            Self::NumberOfQueues => 0x07,
            Self::WriteAtomicity => 0x0a,
            Self::AsyncEventConfiguration => 0x0b,
            Self::KeepAliveTimer => 0x0f,
            Self::HostBehaviorSupport => 0x16,
            Self::CommandSetProfile => 0x19,
            Self::HostIdentifier => 0x81,
        }
    }

    /// What a feature identifier means.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.code() == code)
    }

    /// The bytes that Get Features returns and Set Features takes, beside the dword.
    pub const fn data_len(self) -> u32 {
        match self {
            Self::HostBehaviorSupport => 512,
            Self::HostIdentifier => 16,
            Self::Arbitration
            | Self::PowerManagement
            | Self::TemperatureThreshold
            | Self::VolatileWriteCache
            | Self::NumberOfQueues
            | Self::WriteAtomicity
            | Self::AsyncEventConfiguration
            | Self::KeepAliveTimer
            | Self::CommandSetProfile => 0,
        }
    }
}

/// The length of Host Behavior Support.
pub const HOST_BEHAVIOR_LEN: usize = 512;

/// True when Host Behavior Support enables Copy format 2h.
pub fn enables_cross_copy(host_behavior: &[u8; HOST_BEHAVIOR_LEN]) -> bool {
    u16::from_le_bytes([host_behavior[4], host_behavior[5]]) & CopyFormat::CDFE != 0
}

/// Asynchronous event configuration: namespace attribute notices.
pub const EVENT_NAMESPACE: u32 = 1 << 8;
/// Set Features: save.
pub const SAVE: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_survives_the_wire() {
        for feature in Feature::ALL {
            assert_eq!(Feature::of(feature.code()), Some(feature));
        }
        assert!(Feature::ALL.is_sorted_by_key(|feature| feature.code()));
        assert_eq!(Feature::of(0x0e), None);
    }

    #[test]
    fn copy_format_2_is_bit_2_at_byte_4() {
        let mut behavior = [0; HOST_BEHAVIOR_LEN];
        assert!(!enables_cross_copy(&behavior));
        behavior[4] = 1 << 3;
        assert!(!enables_cross_copy(&behavior));
        behavior[4] = 1 << 2;
        assert!(enables_cross_copy(&behavior));
    }
}
