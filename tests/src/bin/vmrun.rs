//! `vmrun` boots a kernel once, runs the guest tests in it and judges them; `tests/vm/README.md` has the rules.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use tests::vm::guest::Config;
use tests::vm::skips::SkipList;
use tests::vm::{run, script};

const USAGE: &str = "\
usage: vmrun [options]
  --kernel NAME   kernel to boot, as tests/vm/setup knows it; default 6.12
  --only GLOBS    only the scripts with such a name; commas between several
  --long          the long scripts as well
  --scripts DIR   folder of the scripts; default tests/vm/guest
  --skips FILE    list of allowed skips; default tests/skips.allow
  --log DIR       folder for the logs; default a new one among the temporary files
  --bin DIR       folder of the binaries to test; default where vmrun is
  --cpus N        default 4
  --memory SIZE   default 4G
Ends with `N passed, N failed, N skipped`. Exit status: 0 when no test failed, 1 when one did, 2 on other errors.
";

struct Options {
    config: Config,
    only: String,
    long: bool,
    scripts: PathBuf,
    skips: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "-h" || argument == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match options(&arguments).and_then(|options| vmrun(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vmrun: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether no test failed.
fn vmrun(options: &Options) -> Result<bool> {
    let scripts = script::load(&options.scripts, &options.only, options.long)?;
    if scripts.is_empty() {
        bail!("no script in {} is called `{}`", options.scripts.display(), options.only);
    }
    let skips = std::fs::read_to_string(&options.skips)
        .with_context(|| format!("cannot read {}", options.skips.display()))?;
    let skips = SkipList::parse(&skips).with_context(|| options.skips.display().to_string())?;
    let release = release(&options.config)?;
    let tally = run::run(&options.config, &release, &scripts, &skips, &mut std::io::stdout())?;
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    Ok(tally.failed == 0)
}

fn options(arguments: &[String]) -> Result<Options> {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let binary = std::env::current_exe().context("cannot tell where vmrun is")?;
    let mut options = Options {
        config: Config {
            scripts: tests.join("vm"),
            kernel: "6.12".to_owned(),
            cpus: 4,
            memory: "4G".to_owned(),
            log: PathBuf::new(),
            bin: binary.parent().context("vmrun is in no folder")?.to_owned(),
        },
        only: "*".to_owned(),
        long: false,
        scripts: tests.join("vm/guest"),
        skips: tests.join("skips.allow"),
    };
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        if option == "--long" {
            options.long = true;
            continue;
        }
        let value = arguments
            .next()
            .with_context(|| format!("`{option}` is no option or lacks its value; see --help"))?;
        match option.as_str() {
            "--kernel" => options.config.kernel.clone_from(value),
            "--only" => options.only.clone_from(value),
            "--scripts" => options.scripts = std::path::absolute(value)?,
            "--skips" => options.skips = value.into(),
            "--log" => options.config.log = std::path::absolute(value)?,
            "--bin" => options.config.bin = std::path::absolute(value)?,
            "--cpus" => options.config.cpus = value.parse().context("--cpus is no number")?,
            "--memory" => options.config.memory.clone_from(value),
            _ => bail!("`{option}` is no option; see --help"),
        }
    }
    if options.config.log.as_os_str().is_empty() {
        options.config.log = default_log(&options.config.kernel)?;
    }
    Ok(options)
}

/// A new folder's name among the temporary files.
fn default_log(kernel: &str) -> Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(std::env::temp_dir().join(format!("vmrun-{kernel}-{}-{}", now.as_secs(), std::process::id())))
}

/// The release of the kernel to boot; an error when it is not set up.
fn release(config: &Config) -> Result<String> {
    let output = Command::new(config.scripts.join("boot"))
        .args(["--kernel", &config.kernel, "--release"])
        .output()
        .context("cannot start tests/vm/boot")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
