//! `ublk top`: all disks, live.

use super::Failure;
use crate::cli::TopArgs;
use crate::control::api::{Disk, LatencyView, OperationLatency, Stats, ZoneReport};
use crate::control::client::Client;
use crate::state::State;
use emulation::Bytes;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A disk as it was when it was looked at.
#[derive(Debug)]
struct Look {
    disk: Disk,
    stats: Stats,
    latency: LatencyView,
    at: Instant,
}

/// What of a disk is shown, a second.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shown {
    name: String,
    size: u64,
    pool: String,
    reads: f64,
    writes: f64,
    copies: f64,
    read: f64,
    written: f64,
    remapped: f64,
    moved: f64,
    avoided: f64,
    p50_ns: u64,
    p99_ns: u64,
    latencies: Vec<(String, OperationLatency)>,
    /// Zones by condition, of the disk that is chosen.
    zones: Vec<(String, usize)>,
    zoned: bool,
}

/// What is on the screen.
#[derive(Debug, Default)]
struct Screen {
    disks: Vec<Shown>,
    chosen: usize,
    /// A server that does not answer.
    trouble: Option<String>,
}

pub(super) fn run(args: &TopArgs) -> Result<String, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("top needs a terminal").hint("ublk stats --watch prints lines"));
    }
    let state = State::open()?;
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::failed(format!("the terminal: {error}")))?;
    let shown = show(&mut terminal, &state, Duration::from_secs(args.period));
    ratatui::restore();
    shown.map(|()| String::new())
}

fn show(terminal: &mut DefaultTerminal, state: &State, period: Duration) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("the terminal: {error}"));
    let mut screen = Screen::default();
    let mut before = BTreeMap::new();
    loop {
        before = refresh(state, &before, &mut screen)?;
        let next = Instant::now() + period;
        loop {
            terminal.draw(|frame| draw(frame, &screen)).map_err(failed)?;
            if !event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
                break;
            }
            let Event::Key(key) = event::read().map_err(failed)? else { continue };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            let last = screen.disks.len().saturating_sub(1);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Up | KeyCode::Char('k') => screen.chosen = screen.chosen.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => screen.chosen = (screen.chosen + 1).min(last),
                _ => {}
            }
        }
    }
}

/// Looks at every disk. What its server does not answer is left out, and said.
fn refresh(
    state: &State,
    before: &BTreeMap<String, Look>,
    screen: &mut Screen,
) -> Result<BTreeMap<String, Look>, Failure> {
    let mut looks = BTreeMap::new();
    screen.trouble = None;
    for record in state.disks()? {
        if !record.process.alive() {
            screen.trouble = Some(format!("the server of disk {} is dead", record.name));
            continue;
        }
        let client = Client::new(&state.socket(&record.pool));
        let path = |rest: &str| format!("/v1/disks/{}{rest}", record.name);
        let look = || {
            let (disk, stats) = (client.call("GET", &path(""))?, client.call("GET", &path("/stats"))?);
            let latency = client.call("GET", &path("/latency"))?;
            Ok::<_, crate::control::client::ClientError>(Look { disk, stats, latency, at: Instant::now() })
        };
        match look() {
            Ok(look) => drop(looks.insert(record.name.clone(), look)),
            Err(error) => screen.trouble = Some(format!("disk {}: {error}", record.name)),
        }
    }
    let chosen = screen.disks.get(screen.chosen).map(|disk| disk.name.clone());
    screen.disks = looks.iter().map(|(name, look)| shown(look, before.get(name))).collect();
    let place = chosen.and_then(|name| screen.disks.iter().position(|disk| disk.name == name));
    screen.chosen = place.unwrap_or(screen.chosen).min(screen.disks.len().saturating_sub(1));
    if let Some(disk) = screen.disks.get_mut(screen.chosen).filter(|disk| disk.zoned) {
        let client = Client::new(&state.socket(&disk.pool));
        // A disk that is gone by now is not there at the next look.
        if let Ok(report) = client.call::<ZoneReport>("GET", &format!("/v1/disks/{}/zones", disk.name)) {
            disk.zones = conditions(&report);
        }
    }
    Ok(looks)
}

fn conditions(report: &ZoneReport) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    for zone in &report.zones {
        let name = serde_json::to_string(&zone.condition).expect("a name has a JSON form");
        *counts.entry(name.trim_matches('"').to_string()).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

fn shown(look: &Look, before: Option<&Look>) -> Shown {
    let Look { disk, stats, latency, at } = look;
    let (change, seconds) = match before {
        Some(before) => (stats.since(&before.stats), at.duration_since(before.at).as_secs_f64().max(1e-3)),
        // Nothing to compare with yet.
        None => (Stats::default(), 1.0),
    };
    let commands = |name: &str| change.commands.get(name).copied().unwrap_or(0) as f64 / seconds;
    let bytes = |name: &str| change.counter(name) as f64 / seconds;
    let worst = |of: fn(&OperationLatency) -> u64| latency.operations.values().map(of).max().unwrap_or(0);
    Shown {
        name: disk.name.clone(),
        size: disk.size.0,
        pool: disk.pool.clone(),
        reads: commands("read"),
        writes: commands("write"),
        copies: commands("copy"),
        read: bytes("door_read_bytes"),
        written: bytes("door_written_bytes"),
        remapped: bytes("remapped_bytes"),
        moved: bytes("moved_mode_bytes")
            + bytes("moved_incongruent_bytes")
            + bytes("moved_head_tail_bytes")
            + bytes("bounced_bytes"),
        avoided: bytes("avoided_bytes"),
        p50_ns: worst(|latency| latency.p50_ns),
        p99_ns: worst(|latency| latency.p99_ns),
        latencies: latency.operations.iter().map(|(name, latency)| (name.clone(), *latency)).collect(),
        zones: Vec::new(),
        zoned: disk.zones.is_some(),
    }
}

/// So many bytes, in four characters and a unit.
fn size(bytes: f64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 99.95 && value > 0.0 && unit > 0);
    format!("{value:.digits$}{}", units[unit])
}

/// So long, in four characters and a unit.
fn time(nanos: u64) -> String {
    match nanos {
        0 => "-".to_string(),
        1..1_000 => format!("{nanos}ns"),
        1_000..100_000 => format!("{:.1}us", nanos as f64 / 1e3),
        100_000..1_000_000 => format!("{}us", nanos / 1_000),
        1_000_000..100_000_000 => format!("{:.1}ms", nanos as f64 / 1e6),
        100_000_000..10_000_000_000 => format!("{}ms", nanos / 1_000_000),
        _ => format!("{}s", nanos / 1_000_000_000),
    }
}

fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Min(6), Constraint::Length(12), Constraint::Length(1)])
            .areas(frame.area());
    let header = [
        "disk",
        "size",
        "read/s",
        "write/s",
        "copy/s",
        "read B/s",
        "write B/s",
        "remapped",
        "moved",
        "avoided",
        "p50",
        "p99",
    ];
    let rows = screen.disks.iter().map(|disk| {
        Row::new([
            disk.name.clone(),
            Bytes(disk.size).to_string(),
            format!("{:.0}", disk.reads),
            format!("{:.0}", disk.writes),
            format!("{:.0}", disk.copies),
            size(disk.read),
            size(disk.written),
            size(disk.remapped),
            size(disk.moved),
            size(disk.avoided),
            time(disk.p50_ns),
            time(disk.p99_ns),
        ])
    });
    let widths = [Constraint::Min(8)].into_iter().chain([Constraint::Length(9); 11]);
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(" ublk top "));
    let mut state = TableState::default().with_selected((!screen.disks.is_empty()).then_some(screen.chosen));
    frame.render_stateful_widget(table, top, &mut state);
    if let Some(disk) = screen.disks.get(screen.chosen) {
        details(frame, disk, middle);
    }
    let line = match &screen.trouble {
        Some(trouble) => trouble.clone(),
        None if screen.disks.is_empty() => "there is no disk of this program".to_string(),
        None => "up and down choose a disk, q ends".to_string(),
    };
    frame.render_widget(Paragraph::new(Line::from(line)), bottom);
}

/// Latencies and zones of the disk that is chosen.
fn details(frame: &mut Frame<'_>, disk: &Shown, area: ratatui::layout::Rect) {
    let [left, right] = Layout::horizontal([Constraint::Min(40), Constraint::Length(30)]).areas(area);
    let rows = disk.latencies.iter().map(|(name, latency)| {
        let OperationLatency { count, p50_ns, p99_ns, p999_ns, max_ns } = *latency;
        Row::new([name.clone(), count.to_string(), time(p50_ns), time(p99_ns), time(p999_ns), time(max_ns)])
    });
    let widths = [Constraint::Min(14)].into_iter().chain([Constraint::Length(10); 5]);
    let table = Table::new(rows, widths)
        .header(Row::new(["latency of", "count", "p50", "p99", "p99.9", "max"]))
        .block(Block::bordered().title(format!(" {}, pool {} ", disk.name, disk.pool)));
    frame.render_widget(table, left);
    let zones: Vec<Line<'_>> = match disk.zoned {
        false => vec![Line::from("not zoned")],
        true => disk.zones.iter().map(|(name, count)| Line::from(format!("{name:<16}{count:>8}"))).collect(),
    };
    frame.render_widget(Paragraph::new(zones).block(Block::bordered().title(" zones ")), right);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn numbers_fit_their_columns() {
        let sizes =
            [(0.0, "0B"), (999.0, "999B"), (2048.0, "2.0K"), (1536.0 * 1024.0, "1.5M"), (3e11, "279G")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
        for (nanos, text) in
            [(0, "-"), (999, "999ns"), (1_500, "1.5us"), (250_000, "250us"), (12_345_678, "12.3ms")]
        {
            assert_eq!(time(nanos), text);
        }
    }

    #[test]
    fn a_screen_shows_every_disk_and_the_details_of_one() {
        let latency =
            OperationLatency { count: 7, p50_ns: 1_500, p99_ns: 250_000, p999_ns: 250_000, max_ns: 300_000 };
        let disk = |name: &str, reads| Shown {
            name: name.to_string(),
            pool: "p".to_string(),
            size: 1 << 30,
            reads,
            avoided: 3.0 * 1024.0 * 1024.0,
            p99_ns: 250_000,
            latencies: vec![("copy".to_string(), latency)],
            zones: vec![("full".to_string(), 3)],
            zoned: name == "b",
            ..Shown::default()
        };
        let screen = Screen { disks: vec![disk("a", 10.0), disk("b", 20.0)], chosen: 1, trouble: None };
        let mut terminal = Terminal::new(TestBackend::new(130, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &screen)).unwrap();
        let text: Vec<String> = terminal
            .backend()
            .buffer()
            .content()
            .chunks(130)
            .map(|row| row.iter().map(|cell| cell.symbol()).collect())
            .collect();
        assert!(
            text[1].contains("disk") && text[1].contains("remapped") && text[1].contains("p99"),
            "{text:?}"
        );
        assert!(
            text[2].contains("a ")
                && text[2].contains("1 GiB")
                && text[2].contains("10")
                && text[2].contains("3.0M")
        );
        let all = text.join("\n");
        for part in ["b, pool p", "copy", "250us", "full", "up and down choose a disk, q ends"] {
            assert!(all.contains(part), "{part} is not in\n{all}");
        }
    }
}
