//! The result, as fio prints it.

use super::options::{CopyOptions, Engine, Rw};
use super::stats::{Direction, Stats};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use ublk_server::control::api;

/// The percentiles that fio prints.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// A job and how it ended.
#[derive(Debug)]
pub(super) struct JobResult {
    pub(super) stats: Stats,
    /// An errno; 0 for none.
    pub(super) error: i32,
}

/// Everything there is to tell.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) options: &'a CopyOptions,
    /// The disk.
    pub(super) target: &'a str,
    pub(super) jobs: Vec<JobResult>,
    /// What the disk counted meanwhile, for others too.
    pub(super) ledger: Option<api::Stats>,
    /// Blocks that were compared, and those that are like another.
    pub(super) verified: Option<(u64, u64)>,
}

impl Report<'_> {
    fn version() -> String {
        format!("ublk-bench-{}", env!("CARGO_PKG_VERSION"))
    }

    fn name(&self) -> &str {
        self.options.name.as_deref().unwrap_or(match self.options.rw {
            Rw::Copy => "copy",
            Rw::RandCopy => "randcopy",
        })
    }

    /// The jobs as they are reported.
    fn groups(&self) -> Vec<(Stats, i32)> {
        if !self.options.group_reporting {
            return self.jobs.iter().map(|job| (job.stats.clone(), job.error)).collect();
        }
        let mut all = Stats::new();
        self.jobs.iter().for_each(|job| all.add(&job.stats));
        let error = self.jobs.iter().map(|job| job.error).find(|error| *error != 0);
        vec![(all, error.unwrap_or(0))]
    }

    /// JSON with fio's keys. Copies have a section of their own, as in the fio of SamsungDS.
    pub(super) fn json(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let jobs: Vec<Value> = self.groups().iter().map(|(stats, error)| self.job(stats, *error)).collect();
        let mut top = json!({
            "fio version": Self::version(),
            "timestamp": now.as_secs(),
            "timestamp_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            "jobs": jobs,
        });
        if let Some(ledger) = &self.ledger {
            top["ledger"] = json!({ "commands": ledger.commands, "counters": ledger.counters });
        }
        if let Some((compared, alike)) = self.verified {
            top["verify"] = json!({ "blocks": compared, "alike": alike });
        }
        serde_json::to_string_pretty(&top).expect("numbers and texts have a JSON form") + "\n"
    }

    fn job(&self, stats: &Stats, error: i32) -> Value {
        let (user, system) = cpu(stats);
        json!({
            "jobname": self.name(),
            "groupid": 0,
            "error": error,
            "elapsed": stats.runtime.as_secs() + 1,
            "job options": self.job_options(),
            "read": direction(&stats.read, stats.runtime),
            "write": direction(&stats.write, stats.runtime),
            "copy": direction(&stats.copy, stats.runtime),
            "job_runtime": millis(stats.runtime),
            "usr_cpu": user,
            "sys_cpu": system,
            "ctx": stats.usage.context_switches,
            "majf": stats.usage.major_faults,
            "minf": stats.usage.minor_faults,
        })
    }

    /// Texts, as in fio.
    fn job_options(&self) -> Map<String, Value> {
        let options = serde_json::to_value(self.options).expect("options have a JSON form");
        let mut texts = Map::new();
        for (name, value) in options.as_object().into_iter().flatten() {
            let text = match value {
                Value::Bool(true) => "1".to_string(),
                Value::Bool(false) => continue,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            texts.insert(name.clone(), text.into());
        }
        if let Some(disk) = &self.options.disk {
            texts.insert("disk".to_string(), disk.to_string().into());
        }
        texts
    }

    /// For people.
    pub(super) fn normal(&self) -> String {
        let options = self.options;
        let engine = match options.engine {
            Engine::Device => "device",
            Engine::Nvme => "nvme",
            Engine::Host => "host",
        };
        let (bs, ranges, depth) = (options.bs.0, options.ranges, options.iodepth);
        let name = self.name();
        let mut out = format!(
            "{name}: {}, bs={bs}, ranges={ranges}, engine={engine}, iodepth={depth}, numjobs={}\n{}\n",
            self.target,
            options.numjobs,
            Self::version()
        );
        for (stats, error) in self.groups() {
            normal_job(&mut out, name, &stats, error);
        }
        if let Some(ledger) = &self.ledger {
            let moved: Vec<String> = ledger
                .counters
                .iter()
                .filter(|(_, bytes)| **bytes > 0)
                .map(|(counter, bytes)| format!("{counter}={bytes}"))
                .collect();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  ledger: {}", moved.join(", "));
        }
        if let Some((compared, alike)) = self.verified {
            let _ = writeln!(
                out,
                "  verify: {compared} blocks hold what their sources held; {alike} are like another"
            );
        }
        out
    }
}

fn normal_job(out: &mut String, name: &str, stats: &Stats, error: i32) {
    let seconds = stats.runtime.as_secs_f64().max(1e-9);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (bytes, latency) = (stats.copy.bytes, &stats.copy.latency);
    let (user, system) = cpu(stats);
    let micros = |nanos: f64| nanos / 1000.0;
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "{name}: err={error:2}: IOPS={:.1}, BW={:.1}MiB/s ({:.1}MiB/{}msec)\n  \
         lat (usec): min={:.1}, max={:.1}, avg={:.1}, stdev={:.1}\n  percentiles (usec):",
        stats.copy.ios as f64 / seconds,
        mib(bytes) / seconds,
        mib(bytes),
        millis(stats.runtime),
        micros(least(latency)),
        micros(latency.max() as f64),
        micros(latency.mean()),
        micros(latency.stdev()),
    );
    for percentile in PERCENTILES {
        let _ = write!(
            out,
            " {percentile}th={:.1}",
            micros(latency.value_at_quantile(percentile / 100.0) as f64)
        );
    }
    let _ = writeln!(out, "\n  cpu: usr={user:.2}%, sys={system:.2}%, ctx={}", stats.usage.context_switches);
}

/// The share of one processor that a job used, in percent: user, system.
fn cpu(stats: &Stats) -> (f64, f64) {
    let ticks = stats.runtime.as_secs_f64().max(1e-9) * rustix::param::clock_ticks_per_second() as f64;
    (100.0 * stats.usage.user as f64 / ticks, 100.0 * stats.usage.system as f64 / ticks)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn direction(direction: &Direction, runtime: Duration) -> Value {
    let seconds = runtime.as_secs_f64().max(1e-9);
    let bytes_per_second = direction.bytes as f64 / seconds;
    let runtime = if direction.ios > 0 { millis(runtime) } else { 0 };
    json!({
        "io_bytes": direction.bytes,
        "io_kbytes": direction.bytes >> 10,
        "bw_bytes": bytes_per_second as u64,
        "bw": bytes_per_second as u64 >> 10,
        "iops": direction.ios as f64 / seconds,
        "runtime": runtime,
        "total_ios": direction.ios,
        "short_ios": 0,
        "drop_ios": 0,
        // A command is handed over and awaited in one call: there is no time to submit apart from it.
        "slat_ns": latency(&Histogram::new(3).expect("three digits are allowed"), false),
        "clat_ns": latency(&direction.latency, true),
        "lat_ns": latency(&direction.latency, false),
    })
}

fn least(latency: &Histogram<u64>) -> f64 {
    if latency.is_empty() { 0.0 } else { latency.min() as f64 }
}

fn latency(latency: &Histogram<u64>, percentiles: bool) -> Value {
    let mut out = json!({
        "min": least(latency) as u64,
        "max": latency.max(),
        "mean": latency.mean(),
        "stddev": latency.stdev(),
        "N": latency.len(),
    });
    if percentiles && !latency.is_empty() {
        let values = PERCENTILES
            .iter()
            .map(|percent| (format!("{percent:.6}"), latency.value_at_quantile(percent / 100.0).into()));
        out["percentile"] = Value::Object(values.collect());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn options(line: &str) -> CopyOptions {
        let command = CopyOptions::augment_args(clap::Command::new("copy"));
        let words = ["copy"].into_iter().chain(line.split_whitespace());
        CopyOptions::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn job(ios: u64) -> JobResult {
        let mut stats = Stats::new();
        (1..=ios).for_each(|n| stats.copy.done(4096, Duration::from_micros(n)));
        stats.runtime = Duration::from_secs(2);
        JobResult { stats, error: 0 }
    }

    fn json(options: &CopyOptions, jobs: Vec<JobResult>) -> Value {
        let report = Report { options, target: "x", jobs, ledger: None, verified: None };
        serde_json::from_str(&report.json()).unwrap()
    }

    #[test]
    fn the_keys_are_those_of_fio() {
        let options = options("--disk=a --rw=randcopy --bs=64k --runtime=2 --time_based");
        let json = json(&options, vec![job(100)]);
        assert!(json["fio version"].as_str().unwrap().starts_with("ublk-bench-"));
        let job = &json["jobs"][0];
        assert_eq!(job["jobname"], "randcopy");
        let given =
            [("bs", "65536"), ("rw", "randcopy"), ("disk", "a"), ("time_based", "1"), ("runtime", "2.0")];
        for (name, text) in given {
            assert_eq!(job["job options"][name], text, "{name}");
        }
        let copy = &job["copy"];
        for (key, value) in [
            ("io_bytes", 409_600),
            ("io_kbytes", 400),
            ("bw_bytes", 204_800),
            ("bw", 200),
            ("total_ios", 100),
        ] {
            assert_eq!(copy[key], value, "{key}");
        }
        assert_eq!((copy["iops"].as_f64(), copy["runtime"].as_u64()), (Some(50.0), Some(2000)));
        assert_eq!(copy["lat_ns"]["N"], 100);
        let median = copy["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap();
        assert!((50_000..50_100).contains(&median), "{median}");
        for section in ["read", "write"] {
            assert_eq!((&job[section]["total_ios"], &job[section]["lat_ns"]["N"]), (&0.into(), &0.into()));
        }
    }

    #[test]
    fn group_reporting_makes_one_job_of_all() {
        let json_of = |line| json(&options(line), vec![job(10), job(20)])["jobs"].clone();
        assert_eq!(json_of("--disk=a").as_array().unwrap().len(), 2);
        let group = json_of("--disk=a --group_reporting");
        assert_eq!((group.as_array().unwrap().len(), &group[0]["copy"]["total_ios"]), (1, &30.into()));
    }

    #[test]
    fn an_empty_load_has_zeroes_for_people_too() {
        let options = options("--disk=a");
        let report = Report {
            options: &options,
            target: "x",
            jobs: vec![job(0)],
            ledger: None,
            verified: Some((0, 0)),
        };
        assert!(report.normal().contains("IOPS=0.0, BW=0.0MiB/s"), "{}", report.normal());
    }
}
