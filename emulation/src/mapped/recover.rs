//! A pool as its durable image and its redo log have it.

use super::*;
use crate::redo::Image;

/// Why an image is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// A volume with limits that no pool of this map block could have.
    #[error("volume {0}: {1}")]
    Limits(u32, String),
    /// Two volumes with one number.
    #[error("two volumes have the number {0}")]
    Volume(u32),
    /// An entry or a record beyond its volume or the store.
    #[error("volume {}: blocks {:?} are mapped to {:?}, which cannot be", .0.volume.0, .0.logical, .0.physical)]
    Range(MapChange),
    /// Two entries for a block.
    #[error("volume {0}: two entries for block {1}")]
    Twice(u32, u64),
    /// Records out of order.
    #[error("redo record {1} follows record {0}")]
    Order(u64, u64),
    /// More blocks are named than the pool may have.
    #[error("{0} blocks are in use, the pool has {1}")]
    Full(u64, u64),
}

impl Mapped {
    /// The pool as it was when the last record was written: the maps of the image, changed by the records. What the
    /// records changed is not in the durable image and goes into the next commit; blocks that the image or a
    /// record named and no map names any more are held back until then. The configuration has a durable image.
    ///
    /// # Errors
    /// The first contradiction in the image: it is torn, or of another pool.
    pub fn recover(config: MappedConfig, image: &Image) -> Result<Self, ImageError> {
        let mut device = Self::new(config);
        assert!(device.imaged(), "a pool without a durable image begins anew");
        for (id, limits) in &image.volumes {
            device.recover_volume(*id, limits)?;
        }
        // How often the maps name each block; 0 for those that only the image or an earlier record names.
        let mut names: RangeMap<u32> = RangeMap::new();
        let mut runs = Vec::with_capacity(image.entries.len());
        for entry in &image.entries {
            runs.extend(device.recover_entry(entry)?);
        }
        // In order, so that most are put behind what is there: there may be millions.
        runs.sort_unstable_by_key(|run| run.start);
        let mut end = 0;
        for run in runs {
            if run.start >= end {
                names.insert(run.clone(), 1, &mut |_| {});
            } else {
                names.update(run.clone(), &mut |_, n| Some(n.unwrap_or(0) + 1));
            }
            end = end.max(run.end);
        }
        device.flushes.recovered(image.sequence);
        let mut last = image.sequence;
        for (number, record) in &image.records {
            if *number <= last {
                return Err(ImageError::Order(last, *number));
            }
            last = *number;
            device.replay(record, &mut names)?;
        }
        let (used, total) = (names.keys(), config.physical.0 / config.map_block.0);
        if used > total {
            return Err(ImageError::Full(used, total));
        }
        device.space.adopt(&names);
        Ok(device)
    }

    /// The end of the last block of the store that a map names: a store that ends before it has lost data.
    pub fn store_end(&self) -> Sectors {
        let volumes = self.volumes.iter().filter_map(|slot| slot.volume.as_ref());
        let ends = volumes.flat_map(|volume| volume.map.iter().map(|p| p.value.0 + count(&p.range)));
        Sectors(ends.max().unwrap_or(0) * self.block())
    }

    fn recover_volume(&mut self, id: VolumeId, limits: &Limits) -> Result<(), ImageError> {
        limits.validate().map_err(|error| ImageError::Limits(id.0, error.to_string()))?;
        if limits.map_block != self.config.map_block {
            let (has, pool) = (limits.map_block.bytes(), self.config.map_block.bytes());
            return Err(ImageError::Limits(id.0, format!("map blocks of {has} in a pool of {pool}")));
        }
        if self.volume(id).is_some() {
            return Err(ImageError::Volume(id.0));
        }
        self.add_volume(id, limits.clone());
        Ok(())
    }

    /// The volume of a change, whose ranges are checked; `None` when it is gone.
    fn changed_volume(&mut self, change: &MapChange) -> Result<Option<&mut Volume>, ImageError> {
        let block = self.block();
        let blocks = self.config.physical.0 / block;
        let slot = self.volumes.get_mut(change.volume.index());
        let Some(volume) = slot.and_then(|slot| slot.volume.as_mut()) else {
            return Ok(None);
        };
        let Range { start, end } = change.logical;
        let inside = start < end && end <= volume.limits.capacity.0 / block;
        let stored = |first: u64| first.checked_add(end - start).is_some_and(|end| end <= blocks);
        if !inside || !change.physical.is_none_or(stored) {
            return Err(ImageError::Range(change.clone()));
        }
        Ok(Some(volume))
    }

    /// Maps an entry of the image; gives the blocks that it names, if its volume is there.
    fn recover_entry(&mut self, entry: &MapChange) -> Result<Option<Range<u64>>, ImageError> {
        let Some(physical) = entry.physical else {
            return Err(ImageError::Range(entry.clone()));
        };
        let Some(volume) = self.changed_volume(entry)? else {
            return Ok(None);
        };
        let mut twice = None;
        volume
            .map
            .insert(entry.logical.clone(), Physical(physical), &mut |old| twice = Some(old.range.start));
        if let Some(block) = twice {
            return Err(ImageError::Twice(entry.volume.0, block));
        }
        Ok(Some(physical..physical + count(&entry.logical)))
    }

    fn replay(&mut self, record: &MapChange, names: &mut RangeMap<u32>) -> Result<(), ImageError> {
        let mut replaced = Pins::new();
        // A link may have more than one record: what was one is not known any more.
        let mut links = Links::default();
        let Some(volume) = self.changed_volume(record)? else {
            return Ok(());
        };
        volume.soil(record.logical.clone(), 0, &mut links);
        let mut take = |old: crate::range_map::Piece<Physical>| {
            replaced.push(old.value.0..old.value.0 + count(&old.range));
        };
        match record.physical {
            Some(first) => volume.map.insert(record.logical.clone(), Physical(first), &mut take),
            None => volume.map.remove(record.logical.clone(), &mut take),
        }
        if let Some(first) = record.physical {
            names.update(first..first + count(&record.logical), &mut |_, n| Some(n.unwrap_or(0) + 1));
        }
        for run in replaced {
            names.update(run, &mut |_, n| n.map(|n| n - 1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::redo::NoLog;

    fn config() -> MappedConfig {
        MappedConfig {
            map_block: Sectors(8),
            cap: Sectors(800),
            physical: Sectors(800),
            cache: Cache::Volatile { held_max: Sectors(800) },
            trim: true,
        }
    }

    fn change(volume: u32, logical: Range<u64>, physical: impl Into<Option<u64>>) -> MapChange {
        MapChange { volume: VolumeId(volume), logical, physical: physical.into() }
    }

    fn image(entries: &[MapChange], records: &[(u64, MapChange)]) -> Image {
        let limits = Limits::new(Sectors(160), Sectors(1), Sectors(8));
        Image {
            volumes: vec![(VolumeId(1), limits)],
            entries: entries.to_vec(),
            sequence: 5,
            records: records.to_vec(),
            ..Image::default()
        }
    }

    #[test]
    fn records_change_the_maps_and_what_they_replaced_is_held_back() {
        let entries = [change(1, 0..10, 20), change(1, 12..14, 20), change(7, 0..4, 90)];
        let records = [
            (6, change(1, 2..4, 50)),
            (8, change(1, 4..5, None)),
            (9, change(7, 0..4, 70)),
            (10, change(1, 2..3, 60)),
        ];
        let device = Mapped::recover(config(), &image(&entries, &records)).unwrap();
        let map: Vec<_> = device
            .volume(VolumeId(1))
            .unwrap()
            .map
            .iter()
            .map(|piece| (piece.range, piece.value.0))
            .collect();
        assert_eq!(map, [(0..2, 20), (2..3, 60), (3..4, 51), (5..10, 25), (12..14, 20)]);
        // 22 to 24 by the image, 50 by an earlier record; what volume 7 had is free.
        assert_eq!(device.usage().held, Sectors(4 * 8));
        assert_eq!(device.usage().mapped, Sectors(9 * 8));
        device.check().unwrap();

        let mut pool = Pool::new(Box::new(device), Box::new(NoLog { last: 10 }));
        let flush = Request {
            id: RequestId(1),
            volume: VolumeId(1),
            op: Op::Flush,
            flags: crate::request::Flags::NONE,
        };
        let out = pool.begin(Instant::ORIGIN, flush);
        let Some((_, Next::Run(plan))) = out.iter().find(|(id, _)| id.is_internal()) else {
            panic!("a flush runs a plan: {out:?}")
        };
        let Some(Step::Commit(commit)) = plan.steps.last() else { panic!("no commit: {plan:?}") };
        assert_eq!(commit.changes, [change(1, 2..3, 60), change(1, 3..4, 51), change(1, 4..5, None)]);
    }

    #[test]
    fn an_image_that_contradicts_itself_is_refused() {
        let good = change(1, 0..10, 20);
        for (entries, records, error) in [
            (vec![change(1, 0..21, 0)], vec![], ImageError::Range(change(1, 0..21, 0))),
            (vec![change(1, 3..3, 0)], vec![], ImageError::Range(change(1, 3..3, 0))),
            (vec![change(1, 0..10, 91)], vec![], ImageError::Range(change(1, 0..10, 91))),
            (vec![change(1, 0..1, u64::MAX)], vec![], ImageError::Range(change(1, 0..1, u64::MAX))),
            (vec![change(1, 0..1, None)], vec![], ImageError::Range(change(1, 0..1, None))),
            (vec![good.clone(), change(1, 9..11, 40)], vec![], ImageError::Twice(1, 9)),
            (vec![], vec![(5, good.clone())], ImageError::Order(5, 5)),
            (vec![], vec![(7, good.clone()), (6, good.clone())], ImageError::Order(7, 6)),
            (vec![], vec![(6, change(1, 0..1, 100))], ImageError::Range(change(1, 0..1, 100))),
        ] {
            let found = Mapped::recover(config(), &image(&entries, &records)).unwrap_err();
            assert_eq!(found, error);
        }
        let mut twice = image(&[good], &[]);
        twice.volumes.push(twice.volumes[0].clone());
        assert_eq!(Mapped::recover(config(), &twice).unwrap_err(), ImageError::Volume(1));
        twice.volumes = vec![(VolumeId(1), Limits::new(Sectors(160), Sectors(1), Sectors(16)))];
        assert!(matches!(Mapped::recover(config(), &twice), Err(ImageError::Limits(1, _))));
    }
}
