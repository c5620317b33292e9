//! The client on a real pool that keeps one number for each block, and ends requests in any order.

#![expect(clippy::cast_possible_truncation, reason = "the tests' numbers are small")]
#![expect(clippy::wildcard_enum_match_arm, reason = "whatever the client does not use is a failure")]

use super::*;
use crate::gc::workload::below;
use crate::gc::{Generator, Geometry, Layout, Policy, SplitMix, Untouched, Workload};
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::{
    BlkStatus, Bytes, Control, CopyMode, Instant, IoResult, Next, Out, Plan, Pool, Step, StoreRange, VolumeId,
};
use std::collections::{BTreeMap, VecDeque};

const PAGE: u64 = 8;
const VOLUME: VolumeId = VolumeId(0);
const START: u64 = 5 * PAGE;

/// What goes wrong between the client and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A move is answered, but not done.
    LostMove,
    /// Two sources of a move change places.
    SwappedSources,
    /// A write begins after the one that follows it.
    LateWrite,
    /// A zone is emptied while something of it still counts.
    EarlyReset,
}

/// A disk whose zones have the rules of sequential-write-required zones, whether they are the device's or not.
struct Disk {
    pool: Pool,
    store: Vec<u64>,
    live: Vec<(Plan, Data)>,
    data: BTreeMap<RequestId, Data>,
    buffers: Vec<Vec<u64>>,
    /// The number of the latest contents of each page of the user.
    contents: Vec<u64>,
    /// Pages written of each zone.
    pointers: Vec<u64>,
    config: ClientConfig,
    mistake: Mistake,
    /// Commands until the mistake is made.
    countdown: u32,
    late: VecDeque<Command>,
    done: VecDeque<(RequestId, Completion)>,
}

fn limits() -> Limits {
    Limits::new(Sectors(PAGE * 1024), Sectors(1), Sectors(PAGE))
}

fn config(movement: Movement, layout: Layout) -> ClientConfig {
    ClientConfig {
        volume: VOLUME,
        geometry: Geometry { pages: 150, zones: 30, zone_pages: 8 },
        policy: Policy::Greedy,
        layout,
        page: Sectors(PAGE),
        start: Sector(START),
        zone_size: Sectors(PAGE * 10),
        movement,
        clearing: Clearing::Discard,
        depth: 8,
        write_pages: 1,
        first_id: RequestId(100),
    }
}

impl Disk {
    fn new(config: &ClientConfig, limits: &Limits) -> Self {
        let physical = Sectors(PAGE * 2048);
        let mapped = MappedConfig {
            map_block: Sectors(PAGE),
            cap: physical,
            physical,
            cache: Cache::None,
            trim: true,
        };
        let mut pool = Pool::new(Box::new(Mapped::new(mapped)), Box::new(NoLog::default()));
        assert!(pool.control(Instant::ORIGIN, Control::AddVolume(VOLUME, limits.clone())).is_empty());
        Self {
            pool,
            store: vec![0; 2048],
            live: Vec::new(),
            data: BTreeMap::new(),
            buffers: vec![vec![0; 1024]; 4],
            contents: vec![0; config.geometry.pages as usize],
            pointers: vec![0; config.geometry.zones as usize],
            config: config.clone(),
            mistake: Mistake::None,
            countdown: 0,
            late: VecDeque::new(),
            done: VecDeque::new(),
        }
    }

    /// The zone of a range, and its pages counted from the start of the zone.
    fn place(&self, range: SectorRange) -> Result<(usize, u64, u64), String> {
        let size = self.config.zone_size.0;
        let at = range.start.0.checked_sub(START).ok_or("before the first zone")?;
        let (zone, first, pages) = ((at / size) as usize, at % size / PAGE, range.len.0 / PAGE);
        if first + pages > u64::from(self.config.geometry.zone_pages) {
            return Err(format!("{range} passes the capacity of zone {zone}"));
        }
        Ok((zone, first, pages))
    }

    fn readable(&self, range: SectorRange) -> Result<(), String> {
        let (zone, first, pages) = self.place(range)?;
        if first + pages > self.pointers[zone] {
            return Err(format!("{range} reads zone {zone} past its write pointer"));
        }
        Ok(())
    }

    fn written(&mut self, range: SectorRange) -> Result<(), String> {
        let (zone, first, pages) = self.place(range)?;
        if first != self.pointers[zone] {
            return Err(format!("{range} writes zone {zone} off its write pointer, {}", self.pointers[zone]));
        }
        self.pointers[zone] += pages;
        Ok(())
    }

    /// Begins a command, as the rules of zones allow it.
    fn begin(&mut self, mut command: Command) -> Result<(), String> {
        match &mut command.request.op {
            Op::Write(range) => self.written(*range)?,
            Op::Read(range) => self.readable(*range)?,
            Op::Copy(copy) => {
                for segment in &copy.segments {
                    self.readable(segment.source)?;
                    self.written(segment.destination_range())?;
                }
            }
            Op::Discard(range) => {
                let (zone, first, pages) = self.place(*range)?;
                assert_eq!((first, pages), (0, u64::from(self.config.geometry.zone_pages)));
                self.pointers[zone] = 0;
            }
            Op::ZoneMgmt { zone, action: ZoneAction::Reset } => {
                let len = Sectors(u64::from(self.config.geometry.zone_pages) * PAGE);
                let range = SectorRange { start: *zone, len };
                let (index, first, _) = self.place(range)?;
                assert_eq!(first, 0, "a reset names the start of a zone");
                self.pointers[index] = 0;
                command.request.op = Op::Discard(range);
            }
            other => return Err(format!("the client asked for {other:?}")),
        }
        self.data.insert(command.request.id, command.data);
        let out = self.pool.begin(Instant::ORIGIN, command.request);
        self.take(out);
        Ok(())
    }

    fn take(&mut self, out: Out) {
        for (id, next) in out {
            match next {
                Next::Run(plan) => {
                    let data = self.data.get(&id).cloned().unwrap_or(Data::None);
                    self.live.push((plan, data));
                }
                Next::Done(completion) if !id.is_internal() => {
                    self.data.remove(&id);
                    self.done.push_back((id, completion));
                }
                Next::Done(_) | Next::Wait => {}
            }
        }
    }

    /// Executes and finishes one live plan, any of them.
    fn run_one(&mut self, random: &mut SplitMix) {
        let Some(count) = u32::try_from(self.live.len()).ok().filter(|count| *count > 0) else { return };
        let (plan, data) = self.live.swap_remove(below(random, count) as usize);
        for step in &plan.steps {
            self.execute(step, &data);
        }
        let io = IoResult::done(&plan);
        let out = self.pool.finish(Instant::ORIGIN, plan, io);
        self.take(out);
    }

    fn execute(&mut self, step: &Step, data: &Data) {
        let blocks =
            |at: &StoreRange| (at.start.0 / PAGE) as usize..((at.start.0 + at.len.0) / PAGE) as usize;
        match (step, data) {
            (Step::Write { port, to }, Data::Pages(pages)) => {
                let first = (port.0 / PAGE) as usize;
                for (block, page) in blocks(to).zip(&pages[first..]) {
                    self.store[block] = self.contents[*page as usize];
                }
            }
            (Step::Write { port, to }, Data::Buffer { buffer, offset }) => {
                let first = ((port.0 + offset.0) / PAGE) as usize;
                let to = blocks(to);
                let from = &self.buffers[*buffer as usize][first..first + to.len()];
                self.store[to].copy_from_slice(from);
            }
            (Step::Read { from, port }, Data::Buffer { buffer, offset }) => {
                let first = ((port.0 + offset.0) / PAGE) as usize;
                let from = blocks(from);
                self.buffers[*buffer as usize][first..first + from.len()].copy_from_slice(&self.store[from]);
            }
            (Step::Move { from, to, .. }, Data::None) => {
                self.store.copy_within(blocks(from), (to.0 / PAGE) as usize);
            }
            (Step::Trim { at }, Data::None) => self.store[blocks(at)].fill(u64::MAX),
            other => panic!("a step that no request of the client needs: {other:?}"),
        }
    }

    /// Hands a command on, with the mistake in its place.
    fn submit(&mut self, mut command: Command, client: &mut Client) -> Result<(), String> {
        let fits = match (self.mistake, &command.request.op) {
            (Mistake::LostMove | Mistake::EarlyReset, Op::Copy(_)) | (Mistake::LateWrite, Op::Write(_)) => {
                true
            }
            (Mistake::SwappedSources, Op::Copy(copy)) => {
                copy.segments.len() > 1 && copy.segments[0].source.len == copy.segments[1].source.len
            }
            _ => false,
        };
        self.countdown = self.countdown.saturating_sub(u32::from(fits));
        if fits && self.countdown == 0 {
            match (std::mem::replace(&mut self.mistake, Mistake::None), &mut command.request.op) {
                (Mistake::LostMove, Op::Copy(copy)) => {
                    for segment in &copy.segments {
                        self.written(segment.destination_range())?;
                    }
                    let whole = Completion::ok(copy.total().expect("small").bytes());
                    return client
                        .complete(command.request.id, &whole)
                        .map_err(|failure| failure.to_string());
                }
                (Mistake::SwappedSources, Op::Copy(copy)) => {
                    let first = copy.segments[0].source;
                    copy.segments[0].source = std::mem::replace(&mut copy.segments[1].source, first);
                }
                (Mistake::EarlyReset, Op::Copy(copy)) => {
                    let (zone, ..) = self.place(copy.segments[0].source)?;
                    self.pointers[zone] = 0;
                }
                (Mistake::LateWrite, _) => {
                    self.late.push_back(command);
                    return Ok(());
                }
                (other, op) => unreachable!("{other:?} is not made of {op:?}"),
            }
        }
        self.begin(command)?;
        match self.late.pop_front() {
            Some(late) => self.begin(late),
            None => Ok(()),
        }
    }

    /// Everything that may begin begins; then something ends. Gives whether anything happened.
    fn turn(&mut self, client: &mut Client, random: &mut SplitMix) -> Result<bool, String> {
        let mut moved = false;
        while let Some(command) = client.emit() {
            moved = true;
            self.submit(command, client)?;
        }
        moved |= !self.live.is_empty() || !self.done.is_empty();
        self.run_one(random);
        while let Some((id, completion)) = self.done.pop_front() {
            client.complete(id, &completion).map_err(|failure| failure.to_string())?;
        }
        Ok(moved)
    }

    /// Reads every page of the user.
    fn verify(&mut self, client: &Client) -> Result<(), String> {
        self.pool.check()?;
        for page in 0..self.config.geometry.pages {
            let range = client.locate(page).ok_or_else(|| format!("page {page} is nowhere"))?;
            self.readable(range)?;
            let request =
                Request { id: RequestId(0), volume: VOLUME, op: Op::Read(range), flags: Flags::NONE };
            let (_, Next::Run(plan)) = self.pool.begin(Instant::ORIGIN, request).remove(0) else {
                return Err(format!("page {page} cannot be read"));
            };
            let found = match &plan.steps[0] {
                Step::Read { from, .. } => self.store[(from.start.0 / PAGE) as usize],
                other => return Err(format!("page {page} is {other:?}")),
            };
            let io = IoResult::done(&plan);
            self.pool.finish(Instant::ORIGIN, plan, io);
            let expected = self.contents[page as usize];
            if found != expected {
                return Err(format!("page {page} holds {found}, not {expected}"));
            }
        }
        Ok(())
    }
}

const WRITES: u32 = 3_000;

/// Writes pages until the log has been turned over many times. Every now and then it waits for the end of everything,
/// and every page has to be where the client says.
fn run(
    config: &ClientConfig,
    limits: &Limits,
    mistake: Mistake,
    seed: u64,
) -> Result<(Disk, Client), String> {
    let mut disk = Disk::new(config, limits);
    (disk.mistake, disk.countdown) = (mistake, 20);
    let mut client = Client::new(config.clone(), limits).map_err(|error| error.to_string())?;
    let workload = Workload::HotCold { pages: 20, writes: 80 };
    let generator = Generator::new(workload, config.geometry.pages).expect("a workload");
    // The order in which requests end draws from a generator of its own: it may not change what is decided.
    let (mut random, mut order) = (SplitMix(seed), SplitMix(!seed));
    let (mut written, mut goal) = (0, 300);
    for _ in 0..100 * WRITES {
        while written < goal && client.ready() {
            let page = if written < config.geometry.pages { written } else { generator.next(&mut random) };
            written += 1;
            disk.contents[page as usize] = u64::from(written);
            client.write(page, &mut random);
        }
        if !disk.turn(&mut client, &mut order)? {
            if !client.idle() {
                return Err("nothing is under way, and nothing begins".into());
            }
            disk.verify(&client)?;
            if written == WRITES {
                return Ok((disk, client));
            }
            goal += 300;
        }
    }
    Err("it does not end".into())
}

/// The same writes decided by the log alone.
fn decided(config: &ClientConfig, seed: u64) -> Log {
    let mut log = Log::new(config.geometry, config.policy, config.layout).unwrap();
    let generator =
        Generator::new(Workload::HotCold { pages: 20, writes: 80 }, config.geometry.pages).unwrap();
    let mut random = SplitMix(seed);
    for n in 0..WRITES {
        let page = if n < config.geometry.pages { n } else { generator.next(&mut random) };
        log.write(page, &mut random, &mut Untouched);
    }
    log
}

const MOVEMENTS: [Movement; 4] =
    [Movement::Host { buffers: 1 }, Movement::Host { buffers: 3 }, Movement::Copy, Movement::Remap];

fn check_traffic(disk: &mut Disk, client: &Client, seed: u64) {
    let config = &disk.config;
    let log = decided(config, seed);
    assert_eq!(client.log().ledger(), log.ledger(), "the same decisions");
    let (ledger, traffic, page) = (log.ledger(), client.traffic(), PAGE * 512);
    assert_eq!(traffic.user_written, Bytes(ledger.user_pages * page));
    assert_eq!(traffic.moved(), Bytes(ledger.moved_pages * page));
    assert_eq!(traffic.write_amplification(), ledger.write_amplification());
    assert_eq!(traffic.resets + traffic.discards, ledger.victims);
    // What the device counted by itself.
    let (by_host, movement) = (traffic.host_written, config.movement);
    let device = *disk.pool.ledger(VOLUME);
    assert_eq!(device.door_written, Bytes(traffic.user_written.0 + by_host.0));
    assert_eq!(device.copied(), Bytes(traffic.copied.0 + traffic.remapped.0));
    match movement {
        Movement::Host { .. } => {
            assert_eq!((traffic.host_read, device.door_read.0 >= by_host.0), (by_host, true));
            let amplification = ledger.write_amplification().unwrap();
            let link = traffic.link().0 as f64 / traffic.user_written.0 as f64;
            assert!((link - (2.0 * amplification - 1.0)).abs() < 1e-9, "the link carries 2A - 1");
        }
        Movement::Copy => assert_eq!(traffic.copied, traffic.moved()),
        Movement::Remap => {
            assert_eq!((traffic.remapped, device.remapped), (traffic.moved(), traffic.moved()));
            assert_eq!(traffic.link(), traffic.user_written);
        }
    }
}

#[test]
fn every_movement_in_any_order_keeps_every_page_and_the_very_amplification_of_the_log() {
    let mut seed = 0;
    for movement in MOVEMENTS {
        for layout in [Layout::OneLog, Layout::GcLog, Layout::HotCold { hot_pages: 30 }] {
            for (depth, write_pages, clearing) in
                [(1, 1, Clearing::Discard), (7, 1, Clearing::Reset), (40, 5, Clearing::Reset)]
            {
                seed += 1;
                let config = ClientConfig { depth, write_pages, clearing, ..config(movement, layout) };
                let (mut disk, client) = run(&config, &limits(), Mistake::None, seed)
                    .unwrap_or_else(|error| panic!("{movement}, {layout}, depth {depth}: {error}"));
                check_traffic(&mut disk, &client, seed);
            }
        }
    }
}

#[test]
fn policies_that_draw_or_age_decide_the_same_on_a_device() {
    for (seed, policy) in
        [Policy::CostBenefit, Policy::Fifo, Policy::DChoices { d: 4 }, Policy::WindowedGreedy { window: 6 }]
            .into_iter()
            .enumerate()
    {
        let config = ClientConfig { policy, ..config(Movement::Copy, Layout::GcLog) };
        let (mut disk, client) = run(&config, &limits(), Mistake::None, seed as u64).unwrap();
        check_traffic(&mut disk, &client, seed as u64);
    }
}

#[test]
fn requests_stay_within_small_limits() {
    for movement in MOVEMENTS {
        let mut limits = limits();
        limits.max_io = Sectors(3 * PAGE);
        limits.copy_max_segments = 2;
        limits.copy_max_segment_bytes = Bytes(2 * PAGE * 512);
        limits.copy_max_bytes = Bytes(3 * PAGE * 512);
        let config = ClientConfig { write_pages: 9, ..config(movement, Layout::GcLog) };
        let (mut disk, client) = run(&config, &limits, Mistake::None, 5).unwrap();
        check_traffic(&mut disk, &client, 5);
        let traffic = client.traffic();
        assert!(traffic.segments <= 2 * traffic.copies);
    }
}

#[test]
fn a_command_gathers_many_sources() {
    let (_, client) = run(&config(Movement::Copy, Layout::GcLog), &limits(), Mistake::None, 1).unwrap();
    let traffic = client.traffic();
    assert!(traffic.segments > traffic.copies * 3 / 2, "{traffic:?}");
}

#[test]
fn what_a_wrong_client_would_do_is_found() {
    let config = config(Movement::Copy, Layout::OneLog);
    for (mistake, says) in [
        (Mistake::None, None),
        (Mistake::LostMove, Some("page")),
        (Mistake::SwappedSources, Some("holds")),
        (Mistake::LateWrite, Some("off its write pointer")),
        (Mistake::EarlyReset, Some("past its write pointer")),
    ] {
        let found = run(&config, &limits(), mistake, 3).err();
        match (says, &found) {
            (None, None) => {}
            (Some(says), Some(found)) if found.contains(says) => {}
            _ => panic!("{mistake:?}: {found:?}"),
        }
    }
}

#[test]
fn a_failed_request_ends_the_client_and_says_what_it_was() {
    let mut client = Client::new(config(Movement::Copy, Layout::OneLog), &limits()).unwrap();
    let mut random = SplitMix(1);
    client.write(7, &mut random);
    client.write(8, &mut random);
    let command = client.emit().unwrap();
    assert_eq!(command.data, Data::Pages(smallvec::smallvec![7]));
    let id = command.request.id;
    let short = Completion::ok(Bytes(512));
    let failure = client.complete(id, &short).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "a write of the user ended with Ok after 512 B of 4 KiB: the log is not on the device any more"
    );
    assert_eq!((client.emit(), client.ready(), client.failure()), (None, false, Some(&failure)));
    assert_eq!(client.complete(RequestId(99), &Completion::ok(Bytes(0))), Err(Failure::Unknown(99)));
    assert_eq!(client.traffic().user_written, Bytes(0));
}

#[test]
fn a_device_without_zones_refuses_resets() {
    let config = ClientConfig { clearing: Clearing::Reset, ..config(Movement::Remap, Layout::OneLog) };
    let mut disk = Disk::new(&config, &limits());
    let mut client = Client::new(config.clone(), &limits()).unwrap();
    let mut random = SplitMix(1);
    let failure = (0..2_000u32).find_map(|n| {
        client.write(n % config.geometry.pages, &mut random);
        while let Some(command) = client.emit() {
            let out = disk.pool.begin(Instant::ORIGIN, command.request);
            disk.take(out);
            while !disk.live.is_empty() {
                let (plan, _) = disk.live.remove(0);
                let io = IoResult::done(&plan);
                let out = disk.pool.finish(Instant::ORIGIN, plan, io);
                disk.take(out);
            }
            while let Some((id, completion)) = disk.done.pop_front() {
                if let Err(failure) = client.complete(id, &completion) {
                    return Some(failure);
                }
            }
        }
        None
    });
    let expected = Failure::Request {
        what: "the reset of a zone",
        status: BlkStatus::NotSupp,
        done: Bytes(0),
        len: Bytes(0),
    };
    assert_eq!(failure, Some(expected));
}

#[test]
fn what_can_never_work_is_refused() {
    type Change = fn(&mut ClientConfig, &mut Limits);
    let rows: [(Change, &str); 13] = [
        (|c, _| c.geometry.pages = 500, "leave the collector no room"),
        (|c, _| c.depth = 0, "depth is 0"),
        (|c, _| c.write_pages = 0, "write_pages is 0"),
        (|c, _| c.movement = Movement::Host { buffers: 0 }, "buffers is 0"),
        (|c, _| c.first_id = RequestId(RequestId::INTERNAL - 7), "must lie below 2^63"),
        (|_, l| l.read_only = true, "read-only"),
        (|c, _| c.page = Sectors(0), "page of 0 B"),
        (
            |_, l| l.max_io = Sectors(7),
            "page of 4 KiB: must be a multiple of the logical block, 512 B, and at most 3584 B",
        ),
        (|c, _| c.zone_size = Sectors(63), "zones of 32256 B cannot hold 8 pages of 4 KiB"),
        (|c, _| c.start = Sector(u64::MAX), "end past the volume's 4 MiB"),
        (|_, l| l.copy_mode = CopyMode::Off, "move pages by the host"),
        (|_, l| l.copy_max_bytes = Bytes(2048), "less than a page"),
        (|_, l| l.copy_mode = CopyMode::Memcpy, "cannot be remapped: copy=memcpy"),
    ];
    for (change, says) in rows {
        let (mut config, mut limits) = (config(Movement::Remap, Layout::OneLog), limits());
        Client::new(config.clone(), &limits).unwrap();
        change(&mut config, &mut limits);
        let error = Client::new(config, &limits).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let off_by_a_sector =
        ClientConfig { start: Sector(START + 1), ..config(Movement::Remap, Layout::OneLog) };
    assert!(matches!(Client::new(off_by_a_sector, &limits()), Err(ConfigError::Remap { .. })));
}
