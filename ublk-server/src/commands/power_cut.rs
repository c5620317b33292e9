//! `ublk power-cut`: through the server, or on what a dead one left.

use super::{Failure, json, locate};
use crate::cli::PowerCutArgs;
use crate::control::fault_rules::PowerCutRequest;
use crate::server;
use crate::state::State;
use emulation::Keep;

pub(super) fn run(args: &PowerCutArgs) -> Result<String, Failure> {
    let state = State::open()?;
    let target = &args.disk.target;
    let record = locate::record(&state, target)?.ok_or_else(|| locate::no_disk(target))?;
    let view = if record.process.alive() {
        let served = locate::served(&state, target)?;
        let keep = match args.keep {
            Keep::None => "none".to_string(),
            Keep::All => "all".to_string(),
            Keep::Some(seed) => seed.to_string(),
        };
        let request = PowerCutRequest { keep: Some(keep), force: args.force };
        served.client.send("POST", &served.path("/power-cut"), &request)?
    } else {
        let Some(pool) = state.pool(&record.pool)? else {
            let why = format!("the server of disk {} left nothing", record.name);
            return Err(Failure::failed(why).hint(format!("delete the disk: ublk del -n {}", record.name)));
        };
        server::power_cut(&pool.pool, &record, args.keep)?
    };
    if args.json {
        return Ok(json(view));
    }
    if view.stale_pages > 0 {
        let why = format!("the power was cut; {} pages are still in the host's cache", view.stale_pages);
        return Err(Failure::failed(why).hint("unmount the disk, or drop the caches of the host"));
    }
    Ok(String::new())
}
