//! `ublk-bench list` and `run` as their users run them, and the page as a browser shows it.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest run of a browser.
const BROWSER_MAX: Duration = Duration::from_secs(90);

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ublk-bench")).args(args).output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{}-{number}-{name}", std::process::id()))
}

/// A report in both forms, made by a short run.
fn report(name: &str, args: &[&str]) -> (PathBuf, Value) {
    let (html, json) = (scratch(&format!("{name}.html")), scratch(&format!("{name}.json")));
    let files = ["--report", html.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = bench(&[&["run", name], args, &files[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    fs::remove_file(json).unwrap();
    (html, value)
}

#[test]
fn the_list_names_every_experiment_with_its_parameters() {
    let text = String::from_utf8(bench(&["list"]).stdout).unwrap();
    for name in [
        "fabrics",
        "kcopyd",
        "gc",
        "request-path",
        "interference",
        "limits",
        "many-small-ranges",
        "recovery-cost",
    ] {
        assert!(text.contains(&format!("{name}: ")), "{name} is not in\n{text}");
    }
    assert!(text.contains("  simulated; needs nothing and no root\n"));
    assert!(text.contains("  measured in this process; "));
    assert!(text.contains("--set rtt_us=100\n        round trip of a command, in us: a whole number from 0"));
}

#[test]
fn what_makes_no_sense_is_refused_with_what_there_is() {
    for (args, first, second) in [
        (&["run", "fabric"][..], "there is no experiment fabric", "experiments: fabrics kcopyd gc"),
        (&["run", "gc", "--set", "zone=1"], "experiment gc has no parameter zone", "parameters of gc with"),
        (&["run", "gc", "--set", "zones=1"], "zones=1: must be a whole number from 256", "parameters of gc"),
        (&["run", "gc", "--zones=1"], "there is no option --zones", "options of run: --set --report --json"),
    ] {
        let output = bench(args);
        let text = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(lines[0].starts_with(&format!("ublk-bench: {first}")), "{text}");
        assert!(lines[1].trim_start().starts_with(second), "{text}");
    }
}

#[test]
fn a_run_says_all_that_is_needed_to_do_it_again() {
    let args = ["--set", "block_kib=8,64", "--set", "mib=1", "--set", "link_mbit=1000", "--set", "seed=9"];
    let (html, json) = report("fabrics", &args);
    fs::remove_file(html).unwrap();
    assert_eq!((&json["schema"], &json["experiment"]), (&1.into(), &"fabrics".into()));
    assert!(json["command"].as_str().unwrap().starts_with("ublk-bench run fabrics --set block_kib=8,64"));
    assert_eq!((&json["seed"], &json["rounds"]), (&9.into(), &3.into()));
    assert_eq!(json["parameters"]["depth"], "32");
    for key in ["commit", "kernel", "version"] {
        assert!(!json[key].as_str().unwrap().is_empty(), "{key}");
    }
    let series = json["plots"][0]["series"].as_array().unwrap();
    let names: Vec<_> = series.iter().map(|series| series["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host copy, 1 Gbit/s", "offload, 1 Gbit/s"]);
    for point in series.iter().flat_map(|series| series["points"].as_array().unwrap()) {
        let number = |key: &str| point[key].as_f64().unwrap();
        assert!(
            number("low") <= number("y") && number("y") <= number("high") && number("y") > 0.0,
            "{point}"
        );
    }
    // The free parameters of a model are few, and what it was not set from is beside what it says.
    assert!(json["model"]["free"].as_array().unwrap().len() <= 3);
    let predictions = json["predictions"].as_array().unwrap();
    assert!(predictions.len() > 10 && predictions.iter().all(|p| p["error_percent"].is_number()));
    // Two runs of one seed are equal but for the clock.
    let (html, again) = report("fabrics", &args);
    fs::remove_file(html).unwrap();
    assert_eq!((&json["plots"], &json["values"]), (&again["plots"], &again["values"]));
}

/// Says that the page is not looked at. The runner captures what is printed by macros, and shows it of failures alone.
fn skipped() {
    std::io::stdout().write_all(b"\nskipped host/report-in-a-browser: chromium is not installed\n").unwrap();
}

fn browser() -> Option<&'static str> {
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Runs the browser on a page.
fn chromium(page: &Path, more: &[String]) -> String {
    let home = scratch(&format!("profile-{}", page.file_name().unwrap().to_string_lossy()));
    fs::create_dir_all(&home).unwrap();
    let mut child = Command::new(browser().unwrap())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--window-size=1000,5600"])
        .arg(format!("--user-data-dir={}", home.display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
        text
    });
    let end = Instant::now() + BROWSER_MAX;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the browser did not end within {BROWSER_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = fs::remove_dir_all(home);
    reader.join().unwrap()
}

/// What the page says of itself: every figure, and every two texts that lie on each other.
const LOOK: &str = r#"<script>
const figures = [...document.querySelectorAll('figure')].map(figure => ({
  id: figure.id,
  legend: [...figure.querySelectorAll('.legend li')].map(li => li.textContent.trim()),
  x: figure.querySelector('.axis.x').textContent, x_unit: figure.querySelector('.axis.x').dataset.unit,
  y: figure.querySelector('.axis.y').textContent, y_unit: figure.querySelector('.axis.y').dataset.unit,
  series: [...figure.querySelectorAll('g.series')].map(g => ({
    name: g.dataset.series, origin: g.dataset.origin,
    values: [...g.querySelectorAll('[data-y]')].map(mark => Number(mark.dataset.y)),
    titles: [...g.querySelectorAll('title')].map(title => title.textContent),
  })),
  ticks: figure.querySelectorAll('.tick').length,
}));
const texts = [...document.querySelectorAll('svg text, .legend li, figcaption, h1, h2, p')]
  .map(node => ({node, box: node.getBoundingClientRect()})).filter(text => text.box.width > 0);
const overlaps = [];
texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
  const x = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
  const y = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
  if (x > 1 && y > 1) overlaps.push(a.node.textContent.trim() + ' | ' + b.node.textContent.trim());
}));
const outside = texts.filter(text => text.node.tagName === 'text').filter(text => {
  const svg = text.node.ownerSVGElement.getBoundingClientRect();
  return text.box.left < svg.left - 1 || text.box.right > svg.right + 1 || text.box.bottom > svg.bottom + 1;
}).map(text => text.node.textContent);
const seen = document.createElement('script');
seen.type = 'application/json'; seen.id = 'seen';
seen.textContent = JSON.stringify({figures, overlaps, outside, texts: texts.length});
document.body.append(seen);
</script>"#;

/// What a browser sees on a page.
fn seen(page: &Path) -> Value {
    let looked = page.with_extension("looked.html");
    let html = fs::read_to_string(page).unwrap().replace("</body>", &format!("{LOOK}</body>"));
    fs::write(&looked, html).unwrap();
    let dom = chromium(&looked, &["--dump-dom".to_string()]);
    fs::remove_file(looked).unwrap();
    let text = dom.split("id=\"seen\">").nth(1).unwrap_or_else(|| panic!("no answer in {dom}"));
    serde_json::from_str(text.split("</script>").next().unwrap()).unwrap()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Whether what a browser sees is what the numbers say.
fn check(seen: &Value, json: &Value) {
    assert_eq!(strings(&seen["overlaps"]), [""; 0], "texts lie on each other");
    assert_eq!(strings(&seen["outside"]), [""; 0], "texts leave their picture");
    let plots = json["plots"].as_array().unwrap();
    assert_eq!(seen["figures"].as_array().unwrap().len(), plots.len());
    for (figure, plot) in seen["figures"].as_array().unwrap().iter().zip(plots) {
        assert_eq!(figure["id"], plot["id"]);
        for axis in ["x", "y"] {
            let (label, unit) = (plot[axis]["label"].as_str().unwrap(), plot[axis]["unit"].as_str().unwrap());
            let expected = if unit.is_empty() { label.to_string() } else { format!("{label} ({unit})") };
            assert_eq!(figure[axis], expected.as_str());
            assert_eq!(figure[format!("{axis}_unit")], unit);
        }
        assert!(figure["ticks"].as_u64().unwrap() >= 4, "{figure}");
        let series = plot["series"].as_array().unwrap();
        for ((drawn, legend), series) in
            figure["series"].as_array().unwrap().iter().zip(strings(&figure["legend"])).zip(series)
        {
            let (name, origin) = (series["name"].as_str().unwrap(), series["origin"].as_str().unwrap());
            assert_eq!((&drawn["name"], &drawn["origin"]), (&series["name"], &series["origin"]));
            assert_eq!(legend, format!("{name} {origin}"));
            let points = series["points"].as_array().unwrap();
            let values: Vec<_> = points.iter().map(|point| point["y"].as_f64().unwrap()).collect();
            let shown: Vec<_> =
                drawn["values"].as_array().unwrap().iter().map(|y| y.as_f64().unwrap()).collect();
            assert_eq!(shown, values, "{name}");
            assert!(strings(&drawn["titles"]).iter().all(|title| title.starts_with(name)));
        }
        assert_eq!(figure["series"].as_array().unwrap().len(), series.len());
    }
}

/// Keeps a picture of the page where `UBLK_SCREENSHOTS` says, for people to look at.
fn screenshot(page: &Path, name: &str) {
    if let Some(dir) = std::env::var_os("UBLK_SCREENSHOTS") {
        let file = Path::new(&dir).join(format!("{name}.png"));
        chromium(page, &[format!("--screenshot={}", file.display())]);
        assert!(fs::metadata(&file).unwrap().len() > 10_000);
    }
}

#[test]
fn a_browser_shows_series_labels_units_and_values_and_no_text_lies_on_another() {
    if browser().is_none() {
        return skipped();
    }
    let mut origins = BTreeSet::new();
    for (name, args) in [
        ("fabrics", &["--set", "mib=1", "--set", "rounds=2"][..]),
        ("kcopyd", &["--set", "mib=2"]),
        ("gc", &["--set", "zones=256", "--set", "over_provisioning=15,50", "--set", "rounds=1"]),
        ("request-path", &[]),
        ("interference", &["--set", "seconds=1", "--set", "copy_mib=8"]),
        ("limits", &["--set", "mib=4", "--set", "rounds=1"]),
        ("many-small-ranges", &["--set", "mib=1", "--set", "rounds=1"]),
        ("recovery-cost", &["--set", "extents=100,1000", "--set", "records=0,100"]),
    ] {
        let (html, json) = report(name, args);
        let seen = seen(&html);
        check(&seen, &json);
        assert!(seen["texts"].as_u64().unwrap() > 10, "{name}");
        let figures = seen["figures"].as_array().unwrap();
        let series = figures.iter().flat_map(|figure| figure["series"].as_array().unwrap());
        origins.extend(series.map(|series| series["origin"].as_str().unwrap().to_string()));
        screenshot(&html, name);
        fs::remove_file(html).unwrap();
    }
    assert_eq!(origins.into_iter().collect::<Vec<_>>(), ["measured", "published", "simulated"]);
}

/// The look at a page finds what it has to find.
#[test]
fn texts_that_lie_on_each_other_or_leave_the_picture_are_seen() {
    if browser().is_none() {
        return skipped();
    }
    let page = scratch("canary.html");
    let html = "<!doctype html><body><svg width=200 height=60><text x=10 y=20>one</text><text x=14 y=22>two</text>\
                <text x=190 y=50>three</text></svg></body>";
    fs::write(&page, html).unwrap();
    let seen = seen(&page);
    fs::remove_file(&page).unwrap();
    assert_eq!(strings(&seen["overlaps"]), ["one | two"]);
    assert_eq!(strings(&seen["outside"]), ["three"]);
}
