//! Engine `kcopyd`: the model of the kernel's copy service over the block devices themselves: slices of 512 KiB, eight of a
//! range at a time, each read and then written.

use super::Failure;
use super::copy::Part;
use super::copy_host::{ALIGN, Ends, Report, pieces};
use crate::cli::CopyArgs;
use crate::signals::Signals;
use emulation::host::kcopyd::{Config, Job, Kcopyd, Notice, Region, SUB_JOB};
use emulation::host::{Data, Emit};
use emulation::{BlkStatus, Bytes, Completion, Instant, Op, RequestId, Sector, SectorRange, VolumeId};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Threads: reads and writes at the same time.
const DEPTH: usize = 8;
const SOURCE: VolumeId = VolumeId(0);
const DESTINATION: VolumeId = VolumeId(1);

/// The two disks, and the slices that were read and are yet to be written, by buffer and place in it.
struct Disks {
    source: File,
    destination: File,
    slices: Mutex<HashMap<(u64, u64), Vec<u8>>>,
}

pub(super) fn run(args: &CopyArgs, parts: &[Part]) -> Result<String, Failure> {
    let Ends { source, destination, .. } = Ends::open(args, parts, "kcopyd")?;
    let disks = Disks { source, destination, slices: Mutex::default() };
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let (report, failure) = copy(&disks, parts, &signals)?;
    report.answer(args, failure, (&disks.source, &disks.destination), &pieces(parts))
}

/// Does all parts; what was done, and why not all of it was.
fn copy(disks: &Disks, parts: &[Part], signals: &Signals) -> Result<(Report, Option<String>), Failure> {
    // A read and the write that follows it are one slice each.
    let slice = SUB_JOB.whole_sectors();
    let mut kcopyd = Kcopyd::new(Config { sub_job: slice, max_io: slice, ..Config::default() });
    let mut jobs = Vec::new();
    for part in parts {
        let region = |volume, start: Bytes| Region {
            volume,
            range: SectorRange { start: Sector(start.whole_sectors().0), len: part.length.whole_sectors() },
        };
        let job = Job::copy(region(SOURCE, part.source), region(DESTINATION, part.destination));
        let id = kcopyd.copy(job).map_err(|error| Failure::usage(error.to_string()))?;
        jobs.push((id, part.length.0, None::<bool>));
    }
    let total_bytes = parts.iter().map(|part| part.length.0).sum();
    let mut report = Report { bytes: 0, total_bytes, reads: 0, writes: 0, engine: "kcopyd" };
    let mut failure = None;
    let begun = std::time::Instant::now();
    let now = || Instant(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let (send, receive) = channel::<Emit>();
    let (answer, answers) = channel();
    let receive = Mutex::new(receive);
    let receive = &receive;
    std::thread::scope(|scope| {
        for _ in 0..DEPTH {
            let answer = answer.clone();
            scope.spawn(move || work(disks, receive, &answer));
        }
        // The threads end with the sender.
        let send = send;
        while !kcopyd.is_idle() {
            for emit in kcopyd.run(now()) {
                match &emit.request.op {
                    Op::Read(_) => report.reads += 1,
                    _ => report.writes += 1,
                }
                send.send(emit).expect("the threads live as long");
            }
            for Notice { job, read_err, write_err } in kcopyd.take_notices() {
                let ended = jobs.iter_mut().find(|(id, ..)| *id == job).expect("it is one of ours");
                ended.2 = Some(!read_err && write_err == 0);
                if read_err || write_err != 0 {
                    let what = if read_err { "read" } else { "written" };
                    failure.get_or_insert(format!("a range could not be {what}; the kernel's log says why"));
                }
            }
            match answers.recv_timeout(Duration::from_millis(50)) {
                Ok((id, completion)) => kcopyd.complete(now(), id, &completion),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("this thread holds a sender"),
            }
            if signals.wait(None, Some(Duration::ZERO)).unwrap_or(true) {
                failure.get_or_insert("the copy was interrupted".to_string());
                break;
            }
        }
    });
    report.bytes = jobs.iter().take_while(|job| job.2 == Some(true)).map(|job| job.1).sum();
    Ok((report, failure))
}

fn work(disks: &Disks, receive: &Mutex<Receiver<Emit>>, answer: &Sender<(RequestId, Completion)>) {
    loop {
        let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(emit) = next else { return };
        let completion = match disks.execute(&emit) {
            Ok(bytes) => Completion::ok(bytes),
            Err(error) => {
                Completion::refused(BlkStatus::from_errno(error.raw_os_error().unwrap_or(libc::EIO)))
            }
        };
        // Whoever was interrupted does not listen any more.
        if answer.send((emit.request.id, completion)).is_err() {
            return;
        }
    }
}

impl Disks {
    fn execute(&self, emit: &Emit) -> std::io::Result<Bytes> {
        let Data::Buffer { id, offset } = emit.data else { panic!("{emit:?} has no buffer") };
        let key = (id.0, offset.0);
        let slices = || self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        match &emit.request.op {
            Op::Read(range) => {
                let len = usize::try_from(range.len.bytes().0).expect("a slice");
                let mut space = vec![0; len + ALIGN];
                let start = space.as_ptr().align_offset(ALIGN);
                self.source.read_exact_at(&mut space[start..start + len], range.start.bytes().0)?;
                slices().insert(key, space);
                Ok(range.len.bytes())
            }
            Op::Write(range) => {
                let len = usize::try_from(range.len.bytes().0).expect("a slice");
                let space = slices().remove(&key).expect("it was read before");
                let start = space.as_ptr().align_offset(ALIGN);
                self.destination.write_all_at(&space[start..start + len], range.start.bytes().0)?;
                Ok(range.len.bytes())
            }
            op => panic!("kcopyd without offload sends no {op:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_copied_in_slices() {
        let path = std::env::temp_dir().join(format!("ublk-kcopyd-{}", std::process::id()));
        let mut bytes = vec![0_u8; 8 << 20];
        for (at, byte) in bytes[..4 << 20].iter_mut().enumerate() {
            *byte = (at / 512) as u8 ^ (at >> 17) as u8;
        }
        std::fs::write(&path, &bytes).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let disks = Disks { source: open(), destination: open(), slices: Mutex::default() };
        let part = |source, length, destination| Part {
            source: Bytes(source),
            length: Bytes(length),
            destination: Bytes(destination),
        };
        let parts = [part(0, (3 << 20) + 512, 4 << 20), part(512, 1024, 0x79_0000)];
        let signals = Signals::block().unwrap();
        let (report, failure) = copy(&disks, &parts, &signals).unwrap();
        let after = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((failure, report.bytes), (None, (3 << 20) + 512 + 1024));
        // Six slices and the rest, and one.
        assert_eq!((report.reads, report.writes), (8, 8));
        assert_eq!(after[4 << 20..][..(3 << 20) + 512], bytes[..(3 << 20) + 512]);
        assert_eq!(after[0x79_0000..][..1024], bytes[512..512 + 1024]);
        assert!(disks.slices.into_inner().unwrap().is_empty());
    }
}
