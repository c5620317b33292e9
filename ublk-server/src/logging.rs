//! Where a server says what happens: a file of 1 MiB that only its user reads, rotated once, and syslog. A server
//! in the foreground says it on standard error too.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;

/// The file is put aside when it would grow beyond this.
const FILE_MAX: u64 = 1 << 20;
/// The place of the system's log.
const SYSLOG: &str = "/dev/log";
/// The facility "system daemons" in a syslog priority.
const FACILITY: u8 = 3 << 3;

/// The name of the file that was put aside.
pub fn rotated(path: &Path) -> PathBuf {
    path.with_extension("1")
}

/// Starts logging to `path` and to syslog as `tag`; `stderr` adds standard error.
///
/// # Errors
/// The file cannot be opened.
pub fn start(path: &Path, tag: &str, stderr: bool) -> io::Result<()> {
    let file = Shared(Arc::new(Mutex::new(LogFile::open(path)?)));
    let syslog = Syslog {
        tag: format!("{tag}[{}]", std::process::id()),
        socket: Arc::new(connect(Path::new(SYSLOG))),
    };
    let subscriber = tracing_subscriber::registry()
        .with(LevelFilter::INFO)
        .with(fmt::layer().with_ansi(false).with_target(false).with_writer(file))
        .with(
            fmt::layer()
                .with_ansi(false)
                .with_target(false)
                .without_time()
                .with_level(false)
                .with_writer(syslog),
        )
        .with(stderr.then(|| fmt::layer().with_ansi(false).with_target(false).with_writer(io::stderr)));
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)
}

/// Makes a panic in any thread end the process, after its message is in the log. A server that lost a thread would
/// let requests hang; one that is dead lets the kernel end them.
/// Before it is ready its starter reads standard error; later that leads nowhere.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed").to_string();
        let place = panic.location().map_or("unknown place".to_string(), ToString::to_string);
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let why = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let line = format!("panic in thread {thread} at {place}: {why}");
        tracing::error!("{line}");
        eprintln!("{line}");
        std::process::abort();
    }));
}

/// The log file and its length.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { path: path.to_path_buf(), file, len })
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.len + line.len() as u64 > FILE_MAX {
            std::fs::rename(&self.path, rotated(&self.path))?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(line)?;
        self.len += line.len() as u64;
        Ok(())
    }
}

/// The log file as every thread writes it: a line at a time.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<LogFile>>);

impl Write for Shared {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Shared {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The system's log. That there is none is no error.
#[derive(Clone, Debug)]
struct Syslog {
    tag: String,
    socket: Arc<Option<UnixDatagram>>,
}

/// A line on its way to the system's log.
#[derive(Debug)]
struct SyslogLine<'a> {
    syslog: &'a Syslog,
    severity: u8,
}

fn connect(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

impl Write for SyslogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(socket) = self.syslog.socket.as_ref() {
            let text = String::from_utf8_lossy(line);
            let message = format!("<{}>{}: {}", FACILITY | self.severity, self.syslog.tag, text.trim());
            // The file has the line as well, and a full or restarted syslog must not stop the server.
            drop(socket.send(message.as_bytes()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = SyslogLine<'a>;

    fn make_writer(&'a self) -> SyslogLine<'a> {
        SyslogLine { syslog: self, severity: 6 }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> SyslogLine<'a> {
        let severity = match *meta.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        SyslogLine { syslog: self, severity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_rotated_once_and_is_private() {
        let dir = std::env::temp_dir().join(format!("ublk-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("log");
        let mut log = LogFile::open(&path).unwrap();
        let line = [b'x'; 1000];
        for _ in 0..2500 {
            log.line(&line).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= FILE_MAX);
        let aside = std::fs::metadata(rotated(&path)).unwrap();
        assert!(aside.len() <= FILE_MAX && aside.len() > FILE_MAX - 1000);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
        use std::os::unix::fs::MetadataExt;
        assert_eq!(aside.mode() & 0o777, 0o600);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn syslog_gets_a_line_with_its_priority() {
        let path = std::env::temp_dir().join(format!("ublk-syslog-{}", std::process::id()));
        let server = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog { tag: "ublk-p[1]".to_string(), socket: Arc::new(connect(&path)) };
        SyslogLine { syslog: &syslog, severity: 3 }.write_all(b"it failed\n").unwrap();
        let mut buffer = [0; 100];
        let length = server.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"<27>ublk-p[1]: it failed");
        std::fs::remove_file(&path).unwrap();
        let none = Syslog { tag: String::new(), socket: Arc::new(connect(&path)) };
        assert_eq!(
            SyslogLine { syslog: &none, severity: 3 }.write(b"x").unwrap(),
            1,
            "no syslog is no error"
        );
    }
}
