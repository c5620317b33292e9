//! Guest test scripts and the header each begins with.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::skips::glob_matches;

/// One guest test, as its header describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// File name without `.sh`.
    pub name: String,
    /// Where the script is, the same on the host and in the guest.
    pub path: PathBuf,
    /// How long the test may run.
    pub limit: Duration,
    /// Commands it cannot do without.
    pub needs: Vec<String>,
    /// Oldest kernel it applies to, as (major, minor).
    pub minimum_kernel: Option<(u32, u32)>,
    /// Whether it may take the guest down and therefore runs last.
    pub crash: bool,
    /// Whether it runs only when long tests are asked for.
    pub long: bool,
}

impl Script {
    /// Reads the header in `text`: the first lines of the form `# key: value`.
    ///
    /// # Errors
    /// A key that is unknown or has a bad value, and a missing limit.
    pub fn parse(name: &str, path: &Path, text: &str) -> Result<Self> {
        let mut script = Self {
            name: name.to_owned(),
            path: path.to_owned(),
            limit: Duration::ZERO,
            needs: Vec::new(),
            minimum_kernel: None,
            crash: false,
            long: false,
        };
        for (key, value) in text.lines().map_while(header_line) {
            match key {
                "limit" => {
                    let seconds = value.parse().context("`limit` is not a number of seconds")?;
                    script.limit = Duration::from_secs(seconds);
                }
                "needs" => script.needs = value.split_whitespace().map(str::to_owned).collect(),
                "kernel" => script.minimum_kernel = Some(minimum_kernel(value)?),
                "crash" => script.crash = yes(key, value)?,
                "long" => script.long = yes(key, value)?,
                _ => bail!("unknown header `{key}`"),
            }
        }
        if script.limit.is_zero() {
            bail!("the header has no `# limit: SECONDS`");
        }
        Ok(script)
    }

    /// Whether the test applies to a kernel with this release, such as `6.12.95+deb12-amd64`.
    #[must_use]
    pub fn applies_to(&self, release: &str) -> bool {
        match self.minimum_kernel {
            None => true,
            Some(minimum) => release_version(release).is_some_and(|version| version >= minimum),
        }
    }
}

/// The tests in `dir` whose name matches one of the globs in `only`, with commas between them, in the order in which they run.
///
/// # Errors
/// An unreadable folder or script, and a bad header.
pub fn load(dir: &Path, only: &str, long: bool) -> Result<Vec<Script>> {
    let mut scripts = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sh")) else {
            continue;
        };
        if !name.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let script = Script::parse(name, &path, &text).with_context(|| path.display().to_string())?;
        if only.split(',').any(|glob| glob_matches(glob, name)) && (long || !script.long) {
            scripts.push(script);
        }
    }
    scripts.sort_by(|a, b| (a.crash, &a.name).cmp(&(b.crash, &b.name)));
    Ok(scripts)
}

fn header_line(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.strip_prefix("# ")?.split_once(':')?;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase());
    is_key.then(|| (key, value.trim()))
}

fn yes(key: &str, value: &str) -> Result<bool> {
    if value != "yes" {
        bail!("`{key}` can only be `yes`, it is `{value}`");
    }
    Ok(true)
}

fn minimum_kernel(value: &str) -> Result<(u32, u32)> {
    value
        .strip_prefix(">=")
        .and_then(|version| release_version(version.trim()))
        .with_context(|| format!("`kernel` is not of the form `>=6.13`: `{value}`"))
}

fn release_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script> {
        Script::parse("10-x", Path::new("/t/10-x.sh"), text)
    }

    #[test]
    fn a_full_header_is_read_up_to_the_first_other_line() {
        let script = parse(
            "# limit: 30\n# needs: fio  nvme\n# kernel: >=6.13\n# crash: yes\n# long: yes\n# A test.\n# limit: 1\n",
        );
        let script = script.unwrap();
        assert_eq!(script.limit, Duration::from_secs(30));
        assert_eq!(script.needs, ["fio", "nvme"]);
        assert_eq!(script.minimum_kernel, Some((6, 13)));
        assert!(script.crash && script.long);
    }

    #[test]
    fn bad_headers_are_refused() {
        for text in [
            "# A test without a limit\n",
            "# limit: soon\n",
            "# limit: 0\n",
            "# limit: 3\n# kernel: 6.13\n",
            "# limit: 3\n# crash: no\n",
            "# limit: 3\n# timeout: 4\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn kernels_compare_by_number() {
        let script = parse("# limit: 3\n# kernel: >=6.13\n").unwrap();
        assert!(!script.applies_to("6.12.95+deb12-amd64"));
        assert!(!script.applies_to("6.2.1"));
        assert!(script.applies_to("6.13.0-rc1"));
        assert!(script.applies_to("7.3.4+deb13-amd64"));
        assert!(!script.applies_to("unknown"));
    }

    #[test]
    fn crash_tests_come_last_and_long_ones_only_when_asked_for() {
        let dir = std::env::temp_dir().join(format!("ublk-scripts-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in [
            ("20-b.sh", "# limit: 1\n"),
            ("10-a.sh", "# limit: 1\n# crash: yes\n"),
            ("30-c.sh", "# limit: 1\n# long: yes\n"),
            ("lib.sh", "no header"),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        let names = |only: &str, long| -> Vec<String> {
            load(&dir, only, long).unwrap().into_iter().map(|script| script.name).collect()
        };
        assert_eq!(names("*", false), ["20-b", "10-a"]);
        assert_eq!(names("*", true), ["20-b", "30-c", "10-a"]);
        assert_eq!(names("2*", true), ["20-b"]);
        assert_eq!(names("2*,1*", true), ["20-b", "10-a"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
