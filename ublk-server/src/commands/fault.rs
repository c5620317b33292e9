//! `ublk fault`: rules that strike requests.

use super::{Failure, json, locate};
use crate::cli::{FaultAddArgs, FaultCommand, FaultDelArgs, FaultListArgs, TargetArgs};
use crate::control::api::Empty;
use crate::control::fault_rules::{FaultSpec, FaultView};
use crate::state::State;
use serde::Serialize;
use std::fmt::Write;

pub(super) fn run(command: &FaultCommand) -> Result<String, Failure> {
    match command {
        FaultCommand::Add(args) => add(args),
        FaultCommand::List(args) => list(args),
        FaultCommand::Del(args) => del(args),
    }
}

fn served(disk: &TargetArgs) -> Result<locate::Served, Failure> {
    locate::served(&State::open()?, &disk.target)
}

fn add(args: &FaultAddArgs) -> Result<String, Failure> {
    let usage = |error: crate::control::fault_rules::SpecError| {
        Failure::usage(error.to_string()).hint("`ublk fault add --help` shows the keys")
    };
    let spec = FaultSpec::parse(&args.words).map_err(usage)?;
    // What is wrong whatever the disk.
    spec.rule("fault1").map_err(usage)?;
    let served = served(&args.disk)?;
    let view: FaultView = served.client.send("POST", &served.path("/faults"), &spec)?;
    Ok(match args.json {
        true => json(view),
        false => view.rule.name.unwrap_or_default() + "\n",
    })
}

/// The rules of a disk.
#[derive(Serialize)]
struct Faults {
    faults: Vec<FaultView>,
}

fn list(args: &FaultListArgs) -> Result<String, Failure> {
    let served = served(&args.disk)?;
    let faults: Vec<FaultView> = served.client.call("GET", &served.path("/faults"))?;
    if args.json {
        return Ok(json(Faults { faults }));
    }
    let mut out = String::new();
    for fault in &faults {
        let rule = &fault.rule;
        let mut words = vec![rule.name.clone().unwrap_or_default()];
        let mut word = |key: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{key}={value}")));
        };
        word("op", rule.op.clone());
        word("range", rule.range.clone());
        word("nth", rule.nth.map(|n| n.to_string()));
        word("ratio", rule.ratio.clone());
        word("count", rule.count.map(|n| n.to_string()));
        word("seed", rule.seed.map(|n| n.to_string()));
        word("action", Some(rule.action.clone()));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", words.join(" "));
        let _ = writeln!(out, "  struck {} of {}, {} hang", fault.struck, fault.matched, fault.hung.len());
        for strike in &fault.strikes {
            let range = strike.offset.zip(strike.length);
            let range = range.map_or(String::new(), |(offset, length)| format!(" {offset}+{length}"));
            let _ = writeln!(out, "  request {:#x}: {}{range}", strike.request, strike.op);
        }
    }
    Ok(out)
}

fn del(args: &FaultDelArgs) -> Result<String, Failure> {
    let served = served(&args.disk)?;
    let rest = match &args.name {
        // A name that no rule can have would be another path.
        Some(name)
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) =>
        {
            return Err(Failure::usage(format!("\"{name}\": no name of a rule")));
        }
        Some(name) => format!("/faults/{name}"),
        None => "/faults".to_string(),
    };
    let _: Empty = served.client.call("DELETE", &served.path(&rest))?;
    Ok(String::new())
}
