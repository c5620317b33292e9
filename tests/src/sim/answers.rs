//! What an answer has to look like, and which failures a request may be answered with.

use super::world::{Live, World};
use emulation::request::ZoneAction;
use emulation::{BlkStatus, Completion, Flags, Op, RequestId};

impl World<'_> {
    /// A request is answered.
    pub(super) fn complete(&mut self, id: RequestId, completion: &Completion) -> Result<(), String> {
        let live = self.live.remove(&id).expect("the caller looked it up");
        self.report.answered(completion.status);
        if live.struck && !live.refusal.is_empty() {
            return Ok(());
        }
        check_shape(&live, completion)
            .map_err(|error| format!("request {}: {error}: {completion:?}; {:?}", id.0, live.refusal))?;
        if !live.refusal.is_empty() {
            return Ok(());
        }
        let parts = self.end_parts(id, completion)?;
        self.targets.retain(|(other, _)| *other != id);
        let excused = self.zones_excuse(&live, completion.status);
        if !completion.status.is_ok() && !excused && !self.may_fail(&live, completion.status) {
            return Err(format!("request {} failed for no reason: {completion:?}", id.0));
        }
        let exactly = self
            .done(id, &live, completion)
            .map_err(|error| format!("request {}: {error}: {completion:?}", id.0))?;
        if let Some(tally) = self.tallies.get_mut(&live.request.volume)
            && matches!(live.request.op, Op::Copy(_))
        {
            if completion.status.is_ok() {
                tally.copied += completion.bytes.0;
            } else {
                tally.perhaps += live.len().0;
            }
        }
        if !parts {
            self.oracle
                .complete(id, completion, &live.buffers.read, exactly)
                .map_err(|error| format!("request {}: {error}", id.0))?;
        }
        if completion.status.is_ok() && !live.orphan {
            if self.options.held_max.is_some() {
                self.look_at_durable(&live)?;
            }
            self.look_at_space(&live).map_err(|error| format!("request {}: {error}", id.0))?;
        }
        Ok(())
    }

    /// A discard gives whole blocks back, write zeroes with NOUNMAP keeps all.
    fn look_at_space(&self, live: &Live) -> Result<(), String> {
        let seen = live.alone && !self.options.blind;
        let Some(names) = self.names.as_ref().filter(|_| seen) else { return Ok(()) };
        let block = self.options.map_block;
        match &live.request.op {
            Op::WriteZeroes(range) if live.request.flags.has(Flags::NOUNMAP) => {
                let blocks = range.start.0 / block..range.end().0.div_ceil(block);
                if names.mapped_of(live.request.volume, blocks.clone()) < blocks.end - blocks.start {
                    return Err("NOUNMAP, and blocks are gone".into());
                }
            }
            Op::Discard(range) => {
                let blocks = range.start.0.div_ceil(block)..range.end().0 / block;
                if names.mapped_of(live.request.volume, blocks) > 0 {
                    return Err("discarded blocks are mapped".into());
                }
            }
            Op::ZoneMgmt { zone, action: ZoneAction::Reset } => {
                let size = self.zones.volumes[&live.request.volume].geometry.size.0;
                let blocks = zone.0 / block..(zone.0 + size) / block;
                if names.mapped_of(live.request.volume, blocks) > 0 {
                    return Err("blocks of a zone that was reset are mapped".into());
                }
            }
            Op::Read(_)
            | Op::Write(_)
            | Op::WriteZeroes(_)
            | Op::Flush
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => {}
        }
        Ok(())
    }

    /// What was made durable has to be in the durable image now.
    fn look_at_durable(&mut self, live: &Live) -> Result<(), String> {
        let volume = live.request.volume;
        match &live.request.op {
            Op::Flush => self.probe_some(volume, 64),
            Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range)
                if live.request.flags.has(Flags::FUA) =>
            {
                self.probe_range(volume, *range)
            }
            Op::Copy(command) if live.request.flags.has(Flags::FUA) => command
                .segments
                .iter()
                .try_for_each(|segment| self.probe_range(volume, segment.destination_range())),
            Op::Read(_)
            | Op::Write(_)
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => Ok(()),
        }
    }

    /// True when this failure has a reason that the simulation knows of.
    fn may_fail(&self, live: &Live, status: BlkStatus) -> bool {
        let commit_failed = |of: Option<BlkStatus>| {
            self.failed_commits
                .iter()
                .any(|&(at, with)| at >= live.begun && of.is_none_or(|status| status == with))
        };
        let durable = matches!(live.request.op, Op::Flush) || live.request.flags.has(Flags::FUA);
        let commits_fail = self.commits_fail || commit_failed(None);
        match status {
            BlkStatus::Aborted => live.aborted,
            BlkStatus::NoVolume => live.orphan,
            // With room for all volumes only what commits hold back can be in the way.
            BlkStatus::NoSpc => {
                let short = self.options.may_lack_space() && !(live.alone && live.unshared);
                short || commits_fail || live.injected.contains(&status)
            }
            BlkStatus::IoErr if live.orphan => true,
            BlkStatus::IoErr if self.options.log_records.is_some() && commits_fail => true,
            status => live.injected.contains(&status) || (durable && commit_failed(Some(status))),
        }
    }
}

fn check_shape(live: &Live, completion: &Completion) -> Result<(), &'static str> {
    let ensure = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
    let (bytes, failed) = (completion.bytes, completion.first_failed_segment);
    if !live.refusal.is_empty() {
        ensure(live.refusal.contains(&completion.status), "it had to be refused for another reason")?;
        let nothing = bytes.0 == 0 && failed.is_none() && completion.appended_at.is_none();
        return ensure(nothing, "a refused request did something");
    }
    if completion.status.is_ok() {
        ensure(bytes == live.len(), "success, and the bytes are not those of the request")?;
        return ensure(failed.is_none(), "success with a failed segment");
    }
    ensure(bytes.0.is_multiple_of(512), "the finished prefix is no number of sectors")?;
    let Op::Copy(command) = &live.request.op else {
        ensure(bytes < live.len() || bytes.0 == 0, "a failure with everything done")?;
        return ensure(failed.is_none(), "a failed segment of what is no copy");
    };
    let index = failed.ok_or("a failed copy names no segment")? as usize;
    let before: u64 = command.segments.iter().take(index).map(|segment| segment.source.len.bytes().0).sum();
    let segment = command.segments.get(index).ok_or("the failed segment is none of the command")?;
    ensure(
        (before..before + segment.source.len.bytes().0).contains(&bytes.0),
        "the failed segment is not the one in which the finished prefix ends",
    )
}
