//! The published defects, as switches. A model without any is the design as it was meant.

macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident = $source:literal;)*) => {
        /// A defect of a posted version, or one that its review feared.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Defect { $($(#[$doc])* $name,)* }

        impl Defect {
            /// Every defect, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Where it was published.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$name => $source,)* }
            }
        }
    };
}

defects! {
    /// The two halves of a copy are not joined on a queue with `nomerges`.
    NomergesHonoured = "v20 02/12, replies of Van Assche and Le Moal, May 2024: QUEUE_FLAG_NOMERGES";
    /// Halves are joined when their sizes are equal, whoever sent them.
    PairedBySize = "v20 02/12, reply of Van Assche: mispairing under stacked drivers that submit later";
    /// A half takes the queue's tag before it is joined.
    HalfHoldsTag = "v20 02/12, reply of Van Assche: queue depth 1";
    /// A half is dispatched alone when its sender is scheduled away.
    PlugLost = "v20 03/12 and 07/12: a request of other than two segments fails";
    /// A request of two halves counts twice the bytes that it copies.
    LengthDoubled = "v20 02/12: __data_len of the joined request";
    /// A copy exactly as long as the limit is refused.
    LimitExclusive = "v20 03/12: len >= BLK_COPY_MAX_BYTES";
    /// A failed offload is reported as nothing copied, without an error.
    ErrorAsZero = "v20 06/12: blkdev_copy_file_range";
    /// The emulation copies from destination to source.
    OperandsSwapped = "v20 08/12: nvmet passes (dst, src) for (pos_in, pos_out)";
    /// The emulation reports the whole length when its worker failed.
    EmulationAlwaysWhole = "v20 04/12: blkdev_copy_emulation";
    /// Two sources are joined when the second begins where the first would end if it were as long as the second.
    SourcesJoinedByNewLength = "Busch 2025, 2/5: merge of source vectors";
    /// The emulation does not advance the destination from source to source.
    DestinationNotAdvanced = "Busch 2025, 4/5: emulation loop";
    /// A partition's offset is added to the destination, not to the sources.
    SourcesNotRemapped = "Busch 2025, 2/5 and 4/5: blk_partition_remap";
    /// Sources may pass the end of the device.
    SourcesUnchecked = "Busch 2025, 4/5: BLKCPY_VEC";
    /// A command of as many segments as the limit says is refused.
    SegmentsExclusive = "Busch 2025, 3/5: exactly 128 ranges";
    /// A copy of no range succeeds.
    EmptyAccepted = "Busch 2025, 4/5: nr_ranges = 0";
    /// Only the first destination range is checked for overlap.
    OverlapOfFirstOnly = "Busch 2025, 4/5: BLKCPY_VEC";
    /// The status of the device is lost.
    ErrorDropped = "Van Assche 2026, 03/12: completion uses ctx->status";
    /// One reference too many is held for each source but the first.
    ReferencePerSource = "Van Assche 2026, 03/12: ctx refcount";
    /// A negative return value is added to the offset.
    NegativeReturnAdded = "Van Assche 2026, 03/12: chunk loop";
    /// The write worker resolves its context through the member of the read worker.
    WrongWorker = "Van Assche 2026, 03/12: container_of names read_work";
    /// A piece of the emulation is not clipped to its destination segment.
    PieceNotClipped = "Van Assche 2026, 03/12: onload with several destinations";
    /// The device's limits on segments and bytes are not looked at.
    LimitsIgnored = "Van Assche 2026, NVMe patch: MCL and MSRC";
    /// A half whose other half failed waits for ever.
    LoneHalfParked = "review of token designs, 2022 to 2024: who ends a half whose twin never comes";
    /// Halves that were split on their way are matched in the order in which they come.
    SplitHalvesByOrder = "M. Petersen 2020 and 2021: source and destination split differently by stacked drivers";
}

/// The switches that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects(u64);

impl Defects {
    /// None.
    pub const NONE: Self = Self(0);

    /// This one alone.
    pub const fn only(defect: Defect) -> Self {
        Self(1 << defect as u32)
    }

    /// True when it is on.
    pub const fn has(self, defect: Defect) -> bool {
        self.0 & (1 << defect as u32) != 0
    }
}
