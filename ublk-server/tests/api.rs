//! The control API as any client meets it: raw requests, bad ones most of all.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, golden};
use serde_json::{Value, json};

/// Sends a request and gives its status and body.
fn send(env: &Env, method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = env.raw("a", request.as_bytes(), false);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_string())))
}

#[test]
fn bad_requests_are_refused_with_their_code_and_change_nothing() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let before = env.ok(&["info", "-n", "a"]);
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(2 << 20));
    let segment = |source: u64, length: u64, to: u64| {
        format!("{{\"source\":{source},\"length\":{length},\"destination\":{to}}}")
    };
    let copy = |segments: &[String], more: &str| format!("{{\"segments\":[{}]{more}}}", segments.join(","));
    let cases: Vec<(&str, &str, String, u16, &str)> = vec![
        ("GET", "/", String::new(), 404, "not-found"),
        ("GET", "/v2/disks", String::new(), 404, "not-found"),
        ("POST", "/v1/pool", String::new(), 405, "not-allowed"),
        ("PUT", "/v1/disks", String::new(), 405, "not-allowed"),
        ("GET", "/v1/disks/b", String::new(), 404, "no-disk"),
        ("GET", "/v1/disks/0", String::new(), 404, "no-disk"),
        ("GET", "/v1/disks/%2e%2e", String::new(), 404, "no-disk"),
        ("DELETE", "/v1/disks/b", String::new(), 404, "no-disk"),
        ("DELETE", "/v1/disks/a?froce=true", String::new(), 400, "bad-request"),
        ("POST", "/v1/disks", "{".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "[]".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true} x".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "\u{0}\u{1}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"nmae\":\"b\"}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true,\"name\":\"../b\"}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true,\"size\":-1}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true,\"size\":1.5}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true,\"size\":\"1Q\"}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true,\"queues\":70000}".into(), 400, "bad-request"),
        ("POST", "/v1/disks", "{\"no_ublk\":true,\"name\":\"a\"}".into(), 409, "in-use"),
        ("POST", "/v1/disks", long, 413, "too-large"),
        ("PATCH", "/v1/disks/a/limits", "{\"copy\":\"fast\"}".into(), 400, "bad-request"),
        ("PATCH", "/v1/disks/a/limits", "{\"size\":1}".into(), 400, "bad-request"),
        ("PATCH", "/v1/disks/a/limits", "{\"copy_max_bytes\":0}".into(), 400, "bad-request"),
        ("PATCH", "/v1/disks/a/limits", "{\"copy_max_segments\":0}".into(), 400, "bad-request"),
        ("PATCH", "/v1/disks/b/limits", "{}".into(), 404, "no-disk"),
        ("POST", "/v1/disks/a/stats", "{}".into(), 400, "bad-request"),
        ("POST", "/v1/disks/a/stats", "{\"reset\":1}".into(), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", String::new(), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", copy(&[], ""), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", copy(&[segment(0, 4096, 8192)], ",\"fsat\":true"), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", copy(&["{\"source\":0}".into()], ""), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", copy(&[segment(1, 4096, 8192)], ""), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", copy(&[segment(0, 0, 8192)], ""), 400, "bad-request"),
        ("POST", "/v1/disks/a/copies", copy(&[segment(0, 4096, 512)], ""), 422, "copy-overlap"),
        ("POST", "/v1/disks/a/copies", copy(&[segment(u64::MAX - 511, 512, 0)], ""), 422, "out-of-range"),
        (
            "POST",
            "/v1/disks/a/copies",
            "{\"segments\":[{\"from\":\"b\",\"source\":0,\"length\":512,\"destination\":0}]}".into(),
            404,
            "no-disk",
        ),
        ("GET", "/v1/disks/a/copies/1", String::new(), 404, "no-job"),
        ("DELETE", "/v1/disks/a/copies/x", String::new(), 404, "no-job"),
        ("GET", "/v1/disks/a/data", String::new(), 400, "bad-request"),
        ("GET", "/v1/disks/a/data?offset=0", String::new(), 400, "bad-request"),
        ("GET", "/v1/disks/a/data?offset=0&length=2097152", String::new(), 400, "bad-request"),
        ("GET", "/v1/disks/a/data?offset=0&length=511", String::new(), 400, "bad-request"),
        ("GET", "/v1/disks/a/data?offset=-1&length=512", String::new(), 400, "bad-request"),
        ("GET", "/v1/disks/a/data?offset=67108864&length=512", String::new(), 422, "out-of-range"),
        (
            "GET",
            "/v1/disks/a/data?offset=18446744073709551104&length=512",
            String::new(),
            422,
            "out-of-range",
        ),
        ("PUT", "/v1/disks/a/data?offset=0", "short".into(), 400, "bad-request"),
        ("PUT", "/v1/disks/a/data?offset=0", String::new(), 400, "bad-request"),
        ("PUT", "/v1/disks/a/data?offset=0&length=1024", "x".repeat(512), 400, "bad-request"),
        ("PUT", "/v1/disks/a/data?offset=67108864", "x".repeat(512), 422, "out-of-range"),
        ("DELETE", "/v1/disks/a/data?offset=0", String::new(), 400, "bad-request"),
        ("DELETE", "/v1/disks/a/data?offset=0&length=68157440", String::new(), 422, "out-of-range"),
        ("POST", "/v1/debug/panic", "{\"thread\":\"queue\"}".into(), 404, "not-found"),
    ];
    let count = cases.len();
    for (method, path, body, status, code) in cases {
        let (is, answer) = send(&env, method, path, &body);
        let shown = &body[..body.len().min(100)];
        assert_eq!(
            (is, answer["error"]["code"].as_str()),
            (status, Some(code)),
            "{method} {path} {shown}: {answer}"
        );
        assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    assert!(count > 50);
    assert_eq!(env.ok(&["info", "-n", "a"]), before, "nothing has changed");
    assert_eq!(env.ok(&["stats", "-n", "a"]).matches("written").count(), 0);
}

#[test]
fn what_is_no_http_does_no_harm() {
    let env = Env::new();
    env.disk("a", &[]);
    for request in [
        &b"\r\n\r\n"[..],
        b"GET",
        b"GET /v1/pool HTTP/9.9\r\n\r\n",
        b"POST /v1/disks HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/disks HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{}",
        b"POST /v1/disks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        &[0xff; 4096],
        &[b'a'; 100_000],
    ] {
        env.raw("a", request, true);
    }
    assert!(env.ok(&["info", "-n", "a"]).contains("ram"), "the server lives on");
    assert_eq!(env.ok(&["list"]).lines().count(), 1);
}

/// Numbers that differ from run to run.
fn normal(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            for (key, value) in map {
                *value = match key.as_str() {
                    "pid" => json!("PID"),
                    "version" => json!("VERSION"),
                    "map_bytes" => json!("BYTES"),
                    _ => normal(value.take()),
                };
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = normal(value.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

#[test]
fn json_is_what_it_was() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[1; 8192]).unwrap();
    let mut text = String::new();
    for args in [
        &["info", "-n", "a", "--json"][..],
        &["list", "--json"],
        &["copy", "-n", "a", "0+8K", "1M", "--json"],
        &["set", "-n", "a", "copy=memcpy", "--json"],
        &["stats", "-n", "a", "--json"],
    ] {
        let value: Value = serde_json::from_str(&env.ok(args)).unwrap();
        assert_eq!(value["schema"], 1, "{args:?}");
        text.push_str(&format!(
            "$ ublk {}\n{}\n\n",
            args.join(" "),
            serde_json::to_string_pretty(&normal(value)).unwrap()
        ));
    }
    for path in [
        "/v1/pool",
        "/v1/disks",
        "/v1/disks/a",
        "/v1/disks/a/limits",
        "/v1/disks/a/copies",
        "/v1/disks/a/copies/1",
    ] {
        let (status, value) = send(&env, "GET", path, "");
        assert_eq!(status, 200, "{path}");
        text.push_str(&format!("GET {path}\n{}\n\n", serde_json::to_string_pretty(&normal(value)).unwrap()));
    }
    golden("json.txt", &text);
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[1; 8192]).unwrap();
    let text = String::from_utf8(env.client("a").exchange("GET", "/metrics", b"").unwrap()).unwrap();
    for line in text.lines() {
        let word = line.split(' ').next().unwrap();
        if word == "#" {
            continue;
        }
        let (name, value) = line.split_once("} ").unwrap();
        assert!(name.starts_with("ublk_") && name.contains('{'), "{line}");
        value.parse::<u64>().unwrap();
    }
    assert!(text.contains("ublk_commands_total{pool=\"a\",disk=\"a\",op=\"write\"} 1\n"), "{text}");
    assert!(text.contains("ublk_door_written_bytes_total{pool=\"a\",disk=\"a\"} 8192\n"), "{text}");
    assert!(text.contains("ublk_pool_mapped_bytes{pool=\"a\"} 8192\n"), "{text}");
    let helps = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    let kinds: std::collections::BTreeSet<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('{').next().unwrap())
        .collect();
    assert_eq!(helps, kinds.len(), "each metric is described once");
}

#[test]
fn a_disk_that_is_added_and_deleted_over_the_api() {
    let env = Env::new();
    env.disk("a", &[]);
    let (status, disk) = send(&env, "POST", "/v1/disks", "{\"no_ublk\":true,\"size\":\"32M\"}");
    assert_eq!((status, disk["name"].as_str()), (201, Some("disk0")), "{disk}");
    assert_eq!(send(&env, "DELETE", "/v1/disks/disk0", "").0, 200);
    assert_eq!(send(&env, "GET", "/v1/disks/disk0", "").0, 404);
    let (status, answer) = send(&env, "DELETE", "/v1/disks/a", "");
    assert_eq!(status, 200, "the last disk is answered before the server ends: {answer}");
    common::until("the end of the server", || env.state().pools().unwrap().is_empty());
}
