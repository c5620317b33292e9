//! What a loss of power leaves of zones.

use crate::layer::Zoned;
use emulation::{Control, Cx, Keep, Out, VolumeId};

impl Zoned {
    /// The power of a volume fails. Of a zoned one everything that was answered is kept: its pointers tell of it.
    pub(crate) fn power_cut(&mut self, cx: &mut Cx<'_>, volume: VolumeId, control: Control) -> Out {
        let mut out = Out::new();
        let generation = self.next_generation();
        let control = match self.zones_mut(volume) {
            Some(zones) => {
                let changed = zones.lose_power(generation);
                changed.into_iter().for_each(|zone| self.record(cx, volume, zone));
                Control::PowerCut(volume, Keep::All)
            }
            None => control,
        };
        self.pass(cx, control, &mut out);
        out
    }
}
