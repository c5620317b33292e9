//! The threads that write, copy and read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tests::sim::prng::Prng;

use crate::history::{History, Part, Run, Stamp, Time};
use crate::options::Options;
use crate::sector::{self, Buffer, SECTOR};

/// Sectors of the longest write and read.
const IO_MAX: usize = 128;
/// A copy command that takes longer hangs.
const COPY_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two looks at the end at what nobody writes any more.
const SETTLE: Duration = Duration::from_secs(1);
/// Wrong sectors that are reported one by one.
const REPORTED: usize = 5;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Writes to the source.
    pub(crate) source_writes: AtomicU64,
    /// Writes to the destination.
    pub(crate) destination_writes: AtomicU64,
    /// Copy commands that ran.
    pub(crate) copies: AtomicU64,
    /// Sectors of the source and of the destination that were judged.
    pub(crate) judged: [AtomicU64; 2],
    /// Sectors of the destination that held a copy when judged.
    pub(crate) judged_copies: AtomicU64,
}

/// A run of the load.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    options: &'a Options,
    disk: File,
    history: Mutex<History>,
    start: Instant,
    /// Distinguishes the stamps of this run from those of another.
    run: u64,
    stop: AtomicBool,
    wrong: Mutex<Vec<String>>,
    /// What was done.
    pub(crate) counts: Counts,
}

/// What one thread does again and again.
type Work<'a> = fn(&Load<'a>, &mut Prng) -> Result<()>;

impl<'a> Load<'a> {
    /// Opens the disk and stamps every sector of both ranges.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn new(options: &'a Options) -> Result<Self> {
        let disk = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&options.disk);
        let disk = disk.with_context(|| format!("cannot open {}", options.disk.display()))?;
        let load = Self {
            options,
            disk,
            history: Mutex::new(History::new(2 * options.sectors)),
            start: Instant::now(),
            run: u64::from(std::process::id()) << 32 ^ options.seed,
            stop: AtomicBool::new(false),
            wrong: Mutex::default(),
            counts: Counts::default(),
        };
        let mut buffer = Buffer::new(IO_MAX * SECTOR);
        for run in load.all() {
            load.write(&mut buffer, run)?;
        }
        Ok(load)
    }

    /// Runs the load until enough copies were made or the time is over, and looks at all sectors at the end, twice. Returns the wrong ones.
    ///
    /// # Errors
    /// An operation fails.
    pub(crate) fn run(&self) -> Result<Vec<String>> {
        let options = self.options;
        let threads: [(usize, Work<'a>); 4] = [
            (options.source_writers, Self::write_source),
            (options.destination_writers, Self::write_destination),
            (options.copiers, Self::copy),
            (options.readers, Self::read_some),
        ];
        let mut seeds = Prng::new(options.seed);
        let results: Vec<Result<()>> = thread::scope(|scope| {
            let mut handles = Vec::new();
            for (count, work) in threads {
                for _ in 0..count {
                    let mut prng = Prng::new(seeds.next());
                    handles.push(scope.spawn(move || self.repeat(&mut prng, work)));
                }
            }
            handles.into_iter().map(|handle| handle.join().expect("a thread of the load panicked")).collect()
        });
        results.into_iter().collect::<Result<()>>()?;
        let mut buffer = Buffer::new(IO_MAX * SECTOR);
        for look in 0..2 {
            if look > 0 {
                thread::sleep(SETTLE);
            }
            for run in self.all() {
                self.read(&mut buffer, run)?;
            }
        }
        Ok(std::mem::take(&mut *self.wrong.lock().expect("no thread panicked")))
    }

    /// Repeats a piece of work until there are enough copies, the time is over, one fails, or enough is wrong.
    fn repeat(&self, prng: &mut Prng, work: fn(&Self, &mut Prng) -> Result<()>) -> Result<()> {
        let enough = || self.counts.copies.load(Ordering::Relaxed) >= self.options.copies;
        while !enough() && self.start.elapsed() < self.options.time && !self.stop.load(Ordering::Relaxed) {
            work(self, prng).inspect_err(|_| self.stop.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }

    fn write_source(&self, prng: &mut Prng) -> Result<()> {
        let run = self.random_run(prng, 0, IO_MAX);
        self.counts.source_writes.fetch_add(1, Ordering::Relaxed);
        self.write(&mut Buffer::new(run.count * SECTOR), run)
    }

    fn write_destination(&self, prng: &mut Prng) -> Result<()> {
        // Seldom enough that most of what is read there was copied.
        thread::sleep(Duration::from_millis(prng.range(5, 40)));
        let run = self.random_run(prng, self.options.sectors, IO_MAX);
        self.counts.destination_writes.fetch_add(1, Ordering::Relaxed);
        self.write(&mut Buffer::new(run.count * SECTOR), run)
    }

    fn read_some(&self, prng: &mut Prng) -> Result<()> {
        let first = if prng.one_in(8) { 0 } else { self.options.sectors };
        let run = self.random_run(prng, first, IO_MAX);
        thread::sleep(Duration::from_millis(1));
        self.read(&mut Buffer::new(run.count * SECTOR), run)
    }

    /// A run within a range that begins at `first`, short ones more often than long ones.
    fn random_run(&self, prng: &mut Prng, first: usize, most: usize) -> Run {
        let grain = self.options.grain;
        let whole = self.options.sectors / grain;
        let most = (most / grain).clamp(1, whole);
        let mut count = usize::try_from(prng.skewed(most as u64)).expect("at most `most`");
        let mut at = prng.index(whole - count + 1);
        // Half of them in whole blocks of 4 KiB, which no other write shares.
        let block = 8 / grain;
        if block > 1 && prng.one_in(2) && count >= block {
            count -= count % block;
            at -= at % block;
        }
        Run { first: first + at * grain, count: count * grain }
    }

    fn copy(&self, prng: &mut Prng) -> Result<()> {
        let whole = self.random_run(prng, self.options.sectors, self.options.max_copy);
        let grain = self.options.grain;
        let pieces = prng.range(1, 3.min((whole.count / grain) as u64));
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = whole;
        for left in (0..pieces).rev() {
            let units = rest.count / grain - usize::try_from(left)?;
            let units = if left == 0 { units } else { 1 + prng.index(units) };
            let to = Run { first: rest.first, count: units * grain };
            let places = (self.options.sectors - to.count) / grain + 1;
            parts.push(Part { from: self.source_place(prng, places, to), to });
            rest = Run { first: rest.first + to.count, count: rest.count - to.count };
        }
        let mut arguments: Vec<String> = Vec::new();
        for part in &parts {
            arguments.push(format!("{}+{}", self.address(part.from) * SECTOR as u64, part.to.count * SECTOR));
        }
        arguments.push((self.address(whole.first) * SECTOR as u64).to_string());
        let ticket = self.locked().begin_copy(self.now(), &parts);
        self.command(&arguments)?;
        self.locked().finish(self.now(), ticket);
        self.counts.copies.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Where a part is copied from: at the same place within a block of 4 KiB, or anywhere.
    fn source_place(&self, prng: &mut Prng, places: usize, to: Run) -> usize {
        let any = prng.index(places) * self.options.grain;
        let congruent = any - any % 8 + (to.first - self.options.sectors) % 8;
        if prng.one_in(2) && congruent + to.count <= self.options.sectors { congruent } else { any }
    }

    fn command(&self, arguments: &[String]) -> Result<()> {
        let [program, own @ ..] = self.options.copy.as_slice() else { bail!("no copy command") };
        let words = || format!("{} {}", self.options.copy.join(" "), arguments.join(" "));
        let mut child = Command::new(program)
            .args(own)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(words)?;
        let deadline = Instant::now() + COPY_LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() >= deadline {
                child.kill()?;
                bail!("still running after {} s: {}", COPY_LIMIT.as_secs(), words());
            }
            thread::sleep(Duration::from_millis(2));
        };
        ensure!(status.success(), "{status}: {}: {}", words(), last_words(&mut child));
        Ok(())
    }

    fn write(&self, buffer: &mut Buffer, run: Run) -> Result<()> {
        let ticket = self.locked().begin_write(self.now(), run);
        let data = buffer.sectors(run.count);
        for (index, sector) in (run.first..).zip(data.chunks_exact_mut(SECTOR)) {
            sector::stamp(sector, self.run, self.address(index), ticket.number);
        }
        self.disk
            .write_all_at(data, self.address(run.first) * SECTOR as u64)
            .with_context(|| format!("write of {run:?}"))?;
        self.locked().finish(self.now(), ticket);
        Ok(())
    }

    fn read(&self, buffer: &mut Buffer, run: Run) -> Result<()> {
        let ticket = self.locked().begin_read(self.now());
        let data = buffer.sectors(run.count);
        self.disk
            .read_exact_at(data, self.address(run.first) * SECTOR as u64)
            .with_context(|| format!("read of {run:?}"))?;
        let now = self.now();
        let seen: Vec<_> = data.chunks_exact(SECTOR).map(|sector| sector::read(sector, self.run)).collect();
        let mut history = self.locked();
        for (index, seen) in (run.first..).zip(seen) {
            let judged = seen
                .and_then(|(address, version)| self.stamp(address, version))
                .and_then(|stamp| history.judge(now, &ticket, index, stamp).map(|()| stamp));
            match judged {
                Ok(stamp) => self.count(index, stamp),
                Err(why) => self.report(index, &why),
            }
        }
        history.finish(now, ticket);
        Ok(())
    }

    fn count(&self, index: usize, stamp: Stamp) {
        let destination = usize::from(index >= self.options.sectors);
        self.counts.judged[destination].fetch_add(1, Ordering::Relaxed);
        if stamp.origin != index {
            self.counts.judged_copies.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn report(&self, index: usize, why: &str) {
        let mut wrong = self.wrong.lock().expect("no thread panicked");
        if wrong.len() < REPORTED {
            wrong.push(format!("at {} ns: sector {} (index {index}) {why}", self.now(), self.address(index)));
        } else {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn locked(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no thread panicked")
    }

    fn now(&self) -> Time {
        u64::try_from(self.start.elapsed().as_nanos()).expect("584 years")
    }

    /// The sector on the disk of a tracked one: first those of the source, then those of the destination.
    fn address(&self, index: usize) -> u64 {
        let (first, offset) = match index.checked_sub(self.options.sectors) {
            None => (self.options.source, index),
            Some(offset) => (self.options.destination, offset),
        };
        first + offset as u64
    }

    /// The stamp of a sector, whose address has to be a tracked one.
    fn stamp(&self, address: u64, version: u32) -> Result<Stamp, String> {
        let within = |first: u64| {
            let offset = usize::try_from(address.checked_sub(first)?).ok()?;
            (offset < self.options.sectors).then_some(offset)
        };
        let destination = within(self.options.destination).map(|offset| offset + self.options.sectors);
        let origin = within(self.options.source).or(destination);
        origin
            .map(|origin| Stamp { origin, version })
            .ok_or_else(|| format!("holds the stamp of sector {address}"))
    }

    /// All tracked sectors in runs of a buffer's length.
    fn all(&self) -> Vec<Run> {
        let sectors = self.options.sectors;
        let run = |base: usize, at: usize| Run { first: base + at, count: IO_MAX.min(sectors - at) };
        let range = |base| (0..sectors).step_by(IO_MAX).map(move |at| run(base, at));
        range(0).chain(range(sectors)).collect()
    }
}

fn last_words(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What it said is a help only.
        drop(std::io::Read::read_to_string(&mut stderr, &mut text));
    }
    text.trim().to_owned()
}
