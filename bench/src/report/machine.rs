//! On what and by what a run was made.

use serde::Serialize;

/// The program and the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The command line.
    pub command: String,
    /// The version of the program.
    pub version: &'static str,
    /// The commit that it was built from, with `-dirty` when files differed from it.
    pub commit: &'static str,
    /// The kernel that runs.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let quoted = |text: String| {
            let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=,:".contains(c));
            if plain && !text.is_empty() { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
        };
        let arguments = std::env::args_os().skip(1).map(|text| quoted(text.to_string_lossy().into_owned()));
        let command: Vec<_> = std::iter::once("ublk-bench".to_string()).chain(arguments).collect();
        let name = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Self {
            command: command.join(" "),
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("BENCH_COMMIT"),
            kernel: format!("{} {} {}", part(name.sysname()), part(name.release()), part(name.machine())),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

/// Processor time of this process so far, in s.
pub fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
