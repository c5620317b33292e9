//! `ublk zone`: the zones of a disk.

use super::{Failure, json, locate};
use crate::cli::{TargetArgs, ZoneCommand, ZoneFailureName, ZoneRangeArgs, ZoneReportArgs};
use crate::control::api::{Empty, ZoneActionName, ZoneReport, ZoneRequest};
use crate::state::State;
use serde::Serialize;
use std::fmt::Write;

pub(super) fn run(command: &ZoneCommand) -> Result<String, Failure> {
    match command {
        ZoneCommand::Report(args) => report(args),
        ZoneCommand::Open(args) => change(args, ZoneActionName::Open),
        ZoneCommand::Close(args) => change(args, ZoneActionName::Close),
        ZoneCommand::Finish(args) => change(args, ZoneActionName::Finish),
        ZoneCommand::Reset(args) => change(args, ZoneActionName::Reset),
        ZoneCommand::SetCondition(args) => match args.condition {
            ZoneFailureName::ReadOnly => change(&args.zones, ZoneActionName::ReadOnly),
            ZoneFailureName::Offline => change(&args.zones, ZoneActionName::Offline),
        },
    }
}

fn served(disk: &TargetArgs) -> Result<locate::Served, Failure> {
    locate::served(&State::open()?, &disk.target)
}

fn change(args: &ZoneRangeArgs, action: ZoneActionName) -> Result<String, Failure> {
    let served = served(&args.disk)?;
    let request = ZoneRequest { action, offset: args.offset, count: args.count, force: args.force };
    let _: Empty = served.client.send("POST", &served.path("/zones"), &request)?;
    Ok(String::new())
}

fn report(args: &ZoneReportArgs) -> Result<String, Failure> {
    let served = served(&args.disk)?;
    let count = args.count.map_or(String::new(), |count| format!("&count={count}"));
    let path = served.path(&format!("/zones?offset={}{count}", args.offset.0));
    let report: ZoneReport = served.client.call("GET", &path)?;
    if args.json {
        return Ok(json(report));
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:>6} {:>15} {:>12} {:>15}  CONDITION", "ZONE", "START", "CAPACITY", "WP");
    for zone in &report.zones {
        let (start, capacity, wp) = (zone.start, zone.capacity, zone.wp);
        let _ =
            writeln!(out, "{:>6} {start:>15} {capacity:>12} {wp:>15}  {}", zone.zone, word(&zone.condition));
    }
    Ok(out)
}

/// The name that a value has in JSON.
fn word(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).expect("what the API shows has a JSON form");
    json.as_str().expect("a name").to_string()
}
