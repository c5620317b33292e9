//! Who copies what next, and when a job is over.

use super::options::CopyOptions;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The commands of one job, handed out in order. A pass begins when every command of the last one has ended, so
/// that no two commands under way copy to the same place.
#[derive(Debug)]
pub(super) struct Gate {
    begun: Instant,
    deadline: Option<Instant>,
    commands: u64,
    number_ios: u64,
    time_based: bool,
    pause: Option<Duration>,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    pass: u64,
    next: u64,
    issued: u64,
    in_flight: u32,
    stopped: bool,
}

/// A command to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) pass: u64,
    pub(super) command: u64,
    /// Not before.
    pub(super) due: Instant,
}

impl Gate {
    /// The gate of a job with so many commands in a pass, which begins now.
    pub(super) fn new(options: &CopyOptions, commands: u64, begun: Instant) -> Self {
        Self {
            begun,
            deadline: options.runtime.map(|runtime| begun + runtime),
            commands,
            number_ios: options.number_ios.unwrap_or(u64::MAX),
            time_based: options.time_based,
            pause: options.rate_iops.map(|rate| Duration::from_secs(1) / rate),
            state: Mutex::default(),
            idle: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread of the load has panicked")
    }

    /// The next command; `None` when the job is over. Whoever takes one says when it is done.
    pub(super) fn take(&self) -> Option<Ticket> {
        let mut state = self.state();
        loop {
            if state.stopped || state.issued >= self.number_ios || self.is_late(Instant::now()) {
                return None;
            }
            if state.next < self.commands {
                break;
            }
            if !self.time_based {
                return None;
            }
            if state.in_flight > 0 {
                state = self.idle.wait(state).expect("a thread of the load has panicked");
            } else {
                (state.pass, state.next) = (state.pass + 1, 0);
            }
        }
        let pause = self.pause.map_or(Duration::ZERO, |pause| {
            Duration::from_nanos(
                u64::try_from(pause.as_nanos() * u128::from(state.issued)).unwrap_or(u64::MAX),
            )
        });
        let due = self.begun + pause;
        if self.is_late(due) {
            return None;
        }
        let ticket = Ticket { pass: state.pass, command: state.next, due };
        state.next += 1;
        state.issued += 1;
        state.in_flight += 1;
        Some(ticket)
    }

    /// A command has ended; one that failed ends the job.
    pub(super) fn done(&self, ok: bool) {
        let mut state = self.state();
        state.in_flight -= 1;
        state.stopped |= !ok;
        if state.in_flight == 0 {
            self.idle.notify_all();
        }
    }

    /// Ends the job before its next command.
    pub(super) fn stop(&self) {
        self.state().stopped = true;
    }

    /// The time since the job began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The pass under way and how many commands of it were handed out.
    pub(super) fn progress(&self) -> (u64, u64) {
        let state = self.state();
        (state.pass, state.next)
    }

    fn is_late(&self, at: Instant) -> bool {
        self.deadline.is_some_and(|deadline| at >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn gate(line: &str, commands: u64) -> Gate {
        let command = CopyOptions::augment_args(clap::Command::new("copy"));
        let words = ["copy", "--filename=x"].into_iter().chain(line.split_whitespace());
        let options = CopyOptions::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap();
        Gate::new(&options, commands, Instant::now())
    }

    fn all(gate: &Gate) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| gate.take().inspect(|_| gate.done(true))).map(|t| (t.pass, t.command)).collect()
    }

    #[test]
    fn without_a_time_it_is_one_pass_and_number_ios_ends_it_early() {
        assert_eq!(all(&gate("", 3)), [(0, 0), (0, 1), (0, 2)]);
        assert_eq!(all(&gate("--number_ios=2", 3)), [(0, 0), (0, 1)]);
        assert_eq!(all(&gate("--number_ios=9", 3)).len(), 3);
    }

    #[test]
    fn time_based_goes_on_with_the_next_pass() {
        let gate = gate("--time_based --runtime=1m --number_ios=5", 2);
        assert_eq!(all(&gate), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
        assert_eq!(gate.progress(), (2, 1));
    }

    #[test]
    fn a_pass_waits_for_the_last_command_of_the_one_before() {
        let gate = gate("--time_based --runtime=1m --number_ios=2", 1);
        let first = gate.take().unwrap();
        assert_eq!((first.pass, first.command), (0, 0));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| gate.take());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!next.is_finished());
            gate.done(true);
            assert_eq!(next.join().unwrap().unwrap().pass, 1);
        });
    }

    #[test]
    fn a_rate_spaces_the_commands_and_the_time_ends_them() {
        let gate = gate("--rate_iops=100 --runtime=25ms", 100);
        let due: Vec<_> = std::iter::from_fn(|| gate.take()).map(|ticket| ticket.due - gate.begun).collect();
        let millis = |n| Duration::from_millis(n);
        // A slow machine may reach the deadline early.
        assert!(due == [millis(0), millis(10), millis(20)] || due.len() < 3, "{due:?}");
    }

    #[test]
    fn a_failure_ends_the_job() {
        let gate = gate("", 3);
        gate.take().unwrap();
        gate.done(false);
        assert_eq!(gate.take(), None);
    }
}
