//! How fast garbage collection decides, alone and through a pool: pages of the user a second of one core, a million
//! pages.
//!
//! Prints a table; with `BENCH_JSON` in the environment it also appends one JSON object a line to that file.

use bench::aim::{Aim, report};
use bench::pools::{self, Driver, MAP_BLOCK, Random, VOLUME};
use bench::rounds::Spread;
use emulation::{Bytes, CopyMode, Pool, RequestId, Sector, Sectors};
use rustix::time::{ClockId, clock_gettime};
use zoned::gc::{
    Clearing, Client, ClientConfig, Generator, Geometry, Layout, Log, Movement, Policy, Untouched, Workload,
};

const ROUNDS: usize = 15;
/// Over-provisioning of 28 %: `T` is 1.28 times `U`, rounded up to a whole zone.
const GEOMETRY: Geometry = Geometry { pages: 1 << 20, zones: 5243, zone_pages: 256 };
/// Pages of the user before the rounds, the first fill included.
const WARM: u32 = 3 << 20;

/// Draws the pages: all of them in order, then any.
struct Pages {
    generator: Generator,
    random: Random,
    drawn: u32,
}

impl Pages {
    fn new() -> Self {
        let generator = Generator::new(Workload::Uniform, GEOMETRY.pages).expect("a workload");
        Self { generator, random: Random::new(1), drawn: 0 }
    }

    fn next(&mut self) -> u32 {
        self.drawn = self.drawn.saturating_add(1);
        if self.drawn <= GEOMETRY.pages { self.drawn - 1 } else { self.generator.next(&mut self.random) }
    }
}

/// The processor time that this thread has used, in seconds: what else the machine does counts less.
fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Million pages a second of each round, after the warm-up.
fn rounds(pages_a_round: u32, mut write: impl FnMut(u32)) -> Spread {
    write(WARM);
    let rate = |_| {
        let begun = cpu();
        write(pages_a_round);
        f64::from(pages_a_round) / (cpu() - begun) / 1e6
    };
    Spread::of((0..ROUNDS).map(rate).collect())
}

fn alone(policy: Policy) {
    let mut log = Log::new(GEOMETRY, policy, Layout::OneLog).expect("a log");
    let mut pages = Pages::new();
    let rate = rounds(1 << 20, |count| {
        for _ in 0..count {
            let page = pages.next();
            log.write(page, &mut pages.random, &mut Untouched);
        }
    });
    report(&format!("GC, the policy alone: {policy}"), "M pages/s", rate, Aim::AtLeast(5.0));
}

/// A pool without bytes under a client.
struct Disk {
    pool: Pool,
    driver: Driver,
    client: Client,
    pages: Pages,
}

impl Disk {
    fn new(movement: Movement) -> Self {
        let zone = Bytes(MAP_BLOCK.0 * u64::from(GEOMETRY.zone_pages));
        let pool = pools::mapped(Bytes(zone.0 * u64::from(GEOMETRY.zones)), CopyMode::Remap);
        let config = ClientConfig {
            volume: VOLUME,
            geometry: GEOMETRY,
            policy: Policy::Greedy,
            layout: Layout::OneLog,
            page: MAP_BLOCK.whole_sectors(),
            start: Sector(0),
            zone_size: Sectors(zone.whole_sectors().0),
            movement,
            clearing: Clearing::Discard,
            depth: 64,
            write_pages: 1,
            first_id: RequestId(1),
        };
        let client = Client::new(config, pool.limits(VOLUME).expect("the volume")).expect("a client");
        Self { pool, driver: Driver::default(), client, pages: Pages::new() }
    }

    fn write(&mut self, count: u32) {
        for _ in 0..count {
            let page = self.pages.next();
            self.client.write(page, &mut self.pages.random);
            while let Some(command) = self.client.emit() {
                let id = command.request.id;
                let completion = self.driver.request(&mut self.pool, command.request);
                self.client.complete(id, &completion).expect("the device does all that is asked of it");
            }
        }
    }
}

fn through_a_pool(movement: Movement) {
    let mut disk = Disk::new(movement);
    let written = 1 << 18;
    let rate = rounds(written, |count| disk.write(count));
    report(&format!("GC through a pool, moves by {movement}"), "M pages/s", rate, Aim::AtLeast(0.5));

    let mut log = Log::new(GEOMETRY, Policy::Greedy, Layout::OneLog).expect("a log");
    let mut pages = Pages::new();
    for _ in 0..WARM + ROUNDS as u32 * written {
        let page = pages.next();
        log.write(page, &mut pages.random, &mut Untouched);
    }
    assert!(disk.client.idle(), "every request was answered at once");
    assert_eq!(disk.client.log().ledger(), log.ledger(), "the device changes no decision");
    let traffic = disk.client.traffic();
    assert_eq!(traffic.write_amplification(), log.ledger().write_amplification());
}

fn main() {
    // A word on the command line: only what goes through a pool, or only the policies.
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|word| word == part);
    println!("{GEOMETRY}\n");
    println!("| what | median | spread | rounds | aim | |\n|---|---|---|---|---|---|");
    if wanted("alone") {
        for policy in [
            Policy::Greedy,
            Policy::CostBenefit,
            Policy::Fifo,
            Policy::DChoices { d: 10 },
            Policy::WindowedGreedy { window: 64 },
        ] {
            alone(policy);
        }
    }
    if wanted("pool") {
        for movement in [Movement::Host { buffers: 2 }, Movement::Copy, Movement::Remap] {
            through_a_pool(movement);
        }
    }
}
