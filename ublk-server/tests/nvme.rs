//! The NVMe/TCP door over real sockets on loopback, as any user: what hosts do, and what they should not.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use ublk_server::control::api::{Disk, NvmeView};
use ublk_server::nvme::client::{
    Host, HostOptions, Link, QueueOptions, Transfer, copy, deallocate, zone_report,
};
use ublk_server::nvme::wire::command::{AdminOpcode, IoOpcode, Sqe};
use ublk_server::nvme::wire::copy::{CopyFormat, CopyRange};
use ublk_server::nvme::wire::fabrics::DISCOVERY_NQN;
use ublk_server::nvme::wire::feature::{EVENT_NAMESPACE, Feature};
use ublk_server::nvme::wire::identify::{Cns, CommandSet, IdentifyNamespace};
use ublk_server::nvme::wire::log::{DiscoveryHeader, LogFields, LogPage};
use ublk_server::nvme::wire::pdu::Digests;
use ublk_server::nvme::wire::read;
use ublk_server::nvme::wire::status::Status;
use ublk_server::nvme::wire::zone::{IdentifyNamespaceZoned, ZoneEntry, ZoneReceive, ZoneSend};
use zerocopy::little_endian::U32;

const LOCAL: &str = "127.0.0.1:0";

/// A disk without a block device, served over NVMe/TCP at a free port of loopback.
fn disk(env: &Env, name: &str, more: &[&str]) -> NvmeView {
    let mut args = vec!["--size", "64M", "--nvme-tcp", LOCAL];
    args.extend(more);
    env.disk(name, &args);
    view(env, name, name)
}

fn view(env: &Env, pool: &str, name: &str) -> NvmeView {
    let disk: Disk = env.client(pool).call("GET", &format!("/v1/disks/{name}")).unwrap();
    disk.nvme.unwrap()
}

fn host(view: &NvmeView, change: impl Fn(&mut HostOptions)) -> Host {
    let mut options = HostOptions::new(&view.nqn);
    change(&mut options);
    Host::connect(view.listen, options).unwrap()
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 5) as u8 ^ (at >> 8) as u8 ^ seed).collect()
}

fn ok(link: &mut Link, sqe: Sqe, transfer: Transfer) -> Vec<u8> {
    let done = link.run(sqe, transfer).unwrap();
    assert_eq!(done.status(), Status::SUCCESS, "{sqe:?}");
    done.data
}

fn write(link: &mut Link, nsid: u32, slba: u64, data: &[u8]) {
    let sqe = Sqe::io(IoOpcode::Write, nsid, slba, (data.len() / 512) as u32);
    ok(link, sqe, Transfer::Out(data.to_vec()));
}

fn read_blocks(link: &mut Link, nsid: u32, slba: u64, blocks: u32) -> Vec<u8> {
    ok(link, Sqe::io(IoOpcode::Read, nsid, slba, blocks), Transfer::In(blocks * 512))
}

/// The bytes of a disk through the control API.
fn stored(env: &Env, pool: &str, name: &str, offset: u64, length: usize) -> Vec<u8> {
    let request = format!(
        "GET /v1/disks/{name}/data?offset={offset}&length={length} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    let mut stream = std::os::unix::net::UnixStream::connect(env.socket(pool)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer[..answer.len().min(300)])
    );
    answer.split_off(answer.len() - length)
}

#[test]
fn every_command_works_over_real_sockets_and_both_doors_see_the_same() {
    let env = Env::new();
    let view = disk(&env, "a", &[]);
    for (bits, no_flow_control, in_capsule_max) in
        [(0, false, 8192), (3, true, 0), (1, true, 8192), (2, false, 4096)]
    {
        let mut host = host(&view, |options| {
            options.no_flow_control = no_flow_control;
            options.queue =
                QueueOptions { digests: Digests::from_bits(bits), in_capsule_max, ..options.queue };
        });
        assert!(host.set_feature(Feature::NumberOfQueues, 3 << 16 | 3).unwrap() >= 3);
        let mut behavior = vec![0; 512];
        behavior[4] = 1 << 2;
        let mut sqe = Sqe::new(AdminOpcode::SetFeatures.code(), 0);
        sqe.cdw10 = U32::new(Feature::HostBehaviorSupport.code().into());
        host.admin_command(sqe, Transfer::Out(behavior)).unwrap();
        let mut io = host.io_queue(1).unwrap();
        let mut second = host.io_queue(2).unwrap();
        let data = pattern(bits, 1 << 20);
        write(&mut io, view.nsid, 0, &data);
        assert!(read_blocks(&mut second, view.nsid, 0, 2048) == data);
        assert!(stored(&env, "a", "a", 0, 1 << 20) == data);
        ok(&mut io, Sqe::new(IoOpcode::Flush.code(), 1), Transfer::None);
        ok(&mut io, Sqe::io(IoOpcode::Verify, 1, 0, 2048), Transfer::None);
        ok(&mut io, Sqe::io(IoOpcode::Compare, 1, 0, 2048), Transfer::Out(data.clone()));
        for (count, format) in [(1u64, CopyFormat::Same), (2, CopyFormat::Cross), (128, CopyFormat::Same)] {
            let nsid = if format == CopyFormat::Cross { 1 } else { 0 };
            let ranges: Vec<_> = (0..count).map(|n| CopyRange::new(nsid, n * 16, 8)).collect();
            let (sqe, list) = copy(1, 8192, format, &ranges);
            ok(&mut second, sqe, Transfer::Out(list));
            let expected: Vec<u8> =
                (0..count as usize).flat_map(|n| data[n * 8192..n * 8192 + 4096].to_vec()).collect();
            assert!(stored(&env, "a", "a", 8192 * 512, expected.len()) == expected, "{count} ranges");
        }
        let (sqe, list) = deallocate(1, &[(0, 8), (16, 8)]);
        ok(&mut io, sqe, Transfer::Out(list));
        ok(&mut io, Sqe::io(IoOpcode::WriteZeroes, 1, 32, 8), Transfer::None);
        let mut expected = data[..32768].to_vec();
        for block in [0, 16, 32] {
            expected[block * 512..(block + 8) * 512].fill(0);
        }
        assert!(stored(&env, "a", "a", 0, 32768) == expected);
    }
    let info = env.ok(&["info", "-n", "a"]);
    for line in
        [format!("nvme-tcp                {}", view.listen), format!("nvme subsystem          {}", view.nqn)]
    {
        assert!(info.contains(&line), "{info}");
    }
    assert!(env.ok(&["list"]).contains(&format!("nvme-tcp {} nsid 1 {}", view.listen, view.nqn)));
    until("the hosts are gone", || self::view(&env, "a", "a").hosts.is_empty());
}

#[test]
fn many_commands_at_once_end_each_with_its_own_data() {
    let env = Env::new();
    let view = disk(&env, "a", &[]);
    let threads: Vec<_> = (0..3u64)
        .map(|n| {
            let host = host(&view, |options| options.no_flow_control = n % 2 == 0);
            let mut io = host.io_queue(1).unwrap();
            std::thread::spawn(move || {
                let base = n * 16384;
                for n in 0..64u64 {
                    let data = pattern(n as u8, 16384);
                    io.submit(Sqe::io(IoOpcode::Write, 1, base + n * 32, 32), Transfer::Out(data));
                }
                for _ in 0..64 {
                    assert!(io.wait().unwrap().status().is_ok());
                }
                let mut blocks = std::collections::BTreeMap::new();
                for _ in 0..4 {
                    for n in 0..64u64 {
                        let cid =
                            io.submit(Sqe::io(IoOpcode::Read, 1, base + n * 32, 32), Transfer::In(16384));
                        blocks.insert(cid, n);
                    }
                    for _ in 0..64 {
                        let done = io.wait().unwrap();
                        assert!(done.data == pattern(blocks[&done.cid] as u8, 16384));
                    }
                }
                drop(host);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn disks_of_a_pool_are_namespaces_of_one_subsystem() {
    let env = Env::new();
    let first = disk(&env, "a", &[]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a", "--size", "32M", "--nvme-tcp", LOCAL]);
    env.ok(&["add", "--no-ublk", "--name", "c", "--pool", "a", "--size", "32M"]);
    let second = view(&env, "a", "b");
    assert_eq!((first.nsid, second.nsid), (1, 2));
    assert_eq!((&first.nqn, first.listen), (&second.nqn, second.listen));
    assert_ne!(first.uuid, second.uuid);
    let refused =
        env.ublk(&["add", "--no-ublk", "--pool", "a", "--nvme-tcp", LOCAL, "--allow-host", "nqn.x"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("with other options"), "{refused:?}");
    let mut host = host(&first, |_| {});
    host.set_feature(Feature::AsyncEventConfiguration, EVENT_NAMESPACE).unwrap();
    let list = host.identify(Cns::ActiveNamespaces, 0).unwrap();
    assert_eq!(list[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], "c is not served");
    // A change of a limit is told, and seen.
    host.admin.submit(Sqe::new(AdminOpcode::AsyncEventRequest.code(), 0), Transfer::None);
    host.admin.send().unwrap();
    env.ok(&["set", "-n", "b", "copy-max-segments=7"]);
    let event = host.admin.wait().unwrap();
    assert_eq!((event.status(), event.cqe.dw0()), (Status::SUCCESS, 0x0004_0002));
    let sqe = LogFields::sqe(0, LogPage::ChangedNamespaces.code(), 4096, 0);
    assert_eq!(host.admin_command(sqe, Transfer::In(4096)).unwrap().data[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    let namespace: IdentifyNamespace = read(&host.identify(Cns::Namespace, 2).unwrap()).unwrap();
    assert_eq!((namespace.nsze.get(), namespace.msrc), (65536, 6));
    // A disk that goes takes its namespace along; with the last one the door closes.
    let mut io = host.io_queue(1).unwrap();
    write(&mut io, 2, 0, &[1; 512]);
    env.ok(&["del", "-n", "b"]);
    let gone = io.run(Sqe::io(IoOpcode::Read, 2, 0, 1), Transfer::In(512)).unwrap();
    assert_eq!(gone.status(), Status::INVALID_FIELD.dnr());
    assert!(stored(&env, "a", "c", 0, 512).iter().all(|&byte| byte == 0));
    env.ok(&["del", "-n", "a"]);
    assert!(io.run(Sqe::io(IoOpcode::Read, 1, 0, 1), Transfer::In(512)).is_err());
    assert!(TcpStream::connect(first.listen).is_err());
    // The same disk again has the same names.
    let again = env.ok(&["add", "--no-ublk", "--name", "a", "--pool", "a", "--nvme-tcp", LOCAL]);
    assert_eq!(again, "a\n");
    let again = view(&env, "a", "a");
    assert_eq!((&again.nqn, &again.uuid), (&first.nqn, &first.uuid));
}

#[test]
fn a_zoned_disk_is_a_zoned_namespace() {
    let env = Env::new();
    let zones = ["--zoned", "--zone-size", "4M", "--zone-capacity", "3M", "--max-open", "2"];
    let view = disk(&env, "a", &zones);
    let mut host = host(&view, |_| {});
    let id = host.identify_of(Cns::NamespaceOfSet, 1, CommandSet::Zoned).unwrap();
    let id: IdentifyNamespaceZoned = read(&id).unwrap();
    assert_eq!((id.lbafe[0].zsze.get(), id.mor.get()), (8192, 1));
    let mut io = host.io_queue(1).unwrap();
    let data = pattern(1, 8192);
    let append = Sqe::io(IoOpcode::ZoneAppend, 1, 8192, 16);
    for place in [8192, 8208] {
        let done = io.run(append, Transfer::Out(data.clone())).unwrap();
        assert_eq!((done.status(), done.cqe.result.get()), (Status::SUCCESS, place));
    }
    let (sqe, list) = copy(1, 16384, CopyFormat::Same, &[CopyRange::new(0, 8192, 32)]);
    ok(&mut io, sqe, Transfer::Out(list));
    assert!(stored(&env, "a", "a", 8 << 20, 16384) == [&data[..], &data[..]].concat());
    ok(&mut io, ZoneSend::Finish.sqe(1, 8192, false), Transfer::None);
    let report = ZoneReceive { zra: ZoneReceive::REPORT, zrasf: 0, partial: false, len: 64 * 17 };
    let report = ok(&mut io, report.sqe(1, 0), Transfer::In(64 * 17));
    let (count, zones) = zone_report(&report).unwrap();
    let states: Vec<u8> = zones.iter().map(ZoneEntry::state).collect();
    assert_eq!((count, &states[..4]), (16, &[1, 0xe, 2, 1][..]));
    // What the command line shows is the same.
    let shown = env.ok(&["zone", "report", "-n", "a"]);
    assert!(shown.contains("imp-open") && shown.contains("full"), "{shown}");
    ok(&mut io, ZoneSend::Reset.sqe(1, 0, true), Transfer::None);
    assert!(!env.ok(&["zone", "report", "-n", "a"]).contains("full"));
}

#[test]
fn a_disk_in_a_file_has_its_names_wherever_it_is_opened() {
    let env = Env::new();
    let file = env.state().base().join("file");
    let serve = |pool: &str| {
        let path = file.to_str().unwrap();
        let place = ["--name", "kept", "--size", "64M", "--nvme-tcp", LOCAL];
        env.ok(&[&["add", "--no-ublk", "-t", "file", "-f", path, "--pool", pool][..], &place].concat());
        view(&env, pool, "kept")
    };
    let first = serve("one");
    let before = host(&first, |_| {});
    let mut io = before.io_queue(1).unwrap();
    write(&mut io, 1, 8, &pattern(1, 4096));
    env.kill_server("one");
    let again = serve("two");
    assert_eq!((&again.nqn, again.nsid, &again.uuid), (&first.nqn, 1, &first.uuid));
    let host = host(&again, |_| {});
    let mut io = host.io_queue(1).unwrap();
    assert!(read_blocks(&mut io, 1, 8, 8) == pattern(1, 4096));
}

#[test]
fn recovered_disks_are_the_namespaces_that_they_were() {
    let env = Env::new();
    disk(&env, "a", &["--user-recovery"]);
    for name in ["b", "c"] {
        env.ok(&["add", "--no-ublk", "--name", name, "--pool", "a", "--size", "32M", "--nvme-tcp", LOCAL]);
    }
    env.ok(&["del", "-n", "a"]);
    let before = ["b", "c"].map(|name| view(&env, "a", name));
    env.kill_server("a");
    env.ok(&["recover", "-n", "c"]);
    let after = ["b", "c"].map(|name| view(&env, "a", name));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.nsid, &before.uuid, &before.nqn), (after.nsid, &after.uuid, &after.nqn));
    }
    // Whoever gets in finds both.
    let mut host = host(&after[0], |_| {});
    let list = host.identify(Cns::ActiveNamespaces, 0).unwrap();
    let numbers: Vec<u8> = list.chunks(4).map(|number| number[0]).take_while(|number| *number > 0).collect();
    assert_eq!(numbers, after.map(|view| view.nsid as u8));
}

#[test]
fn a_copy_is_aborted_at_its_next_link() {
    let env = Env::new();
    let view = disk(&env, "a", &["--copy", "emulate"]);
    let mut host = host(&view, |_| {});
    let mut io = host.io_queue(1).unwrap();
    for n in 0..16u8 {
        write(&mut io, 1, u64::from(n) * 2048, &pattern(n, 1 << 20));
    }
    // 16 MiB in 16 ranges, in links of 128 KiB. One that ends before the Abort arrives is tried again.
    let ranges: Vec<_> = (0..16).map(|n| CopyRange::new(0, n * 2048, 2048)).collect();
    let aborted = (0..200).find_map(|_| {
        let (sqe, list) = copy(1, 65536, CopyFormat::Same, &ranges);
        let cid = io.submit(sqe, Transfer::Out(list));
        io.send().unwrap();
        let mut abort = Sqe::new(AdminOpcode::Abort.code(), 0);
        abort.cdw10 = U32::new(u32::from(cid) << 16 | 1);
        assert_eq!(host.admin_command(abort, Transfer::None).unwrap().cqe.dw0(), 1, "not at once");
        let done = io.wait().unwrap();
        let ended = done.status() == Status::ABORT_REQUESTED;
        assert!(ended || done.status().is_ok(), "{:?}", done.status());
        ended.then(|| done.cqe.dw0())
    });
    let first = aborted.expect("an Abort came in time") as usize;
    assert!(first < 16);
    for n in 0..first {
        assert!(
            read_blocks(&mut io, 1, 65536 + n as u64 * 2048, 2048) == pattern(n as u8, 1 << 20),
            "range {n}"
        );
    }
    ok(&mut io, Sqe::new(IoOpcode::Flush.code(), 1), Transfer::None);
}

#[test]
fn who_may_connect_is_checked() {
    let env = Env::new();
    let friend = "nqn.2014-08.org.nvmexpress:uuid:friend";
    let view = disk(&env, "a", &["--allow-host", friend, "--discovery", "127.0.0.1:0"]);
    let stranger = Host::connect(view.listen, HostOptions::new(&view.nqn));
    assert!(stranger.unwrap_err().to_string().contains("connect: invalid host (184h)"));
    host(&view, |options| options.hostnqn = friend.to_string());
    let discovery = view.discovery.unwrap();
    let mut options = HostOptions::new(DISCOVERY_NQN);
    for (name, entries) in [(friend, 1), ("nqn.2014-08.org.nvmexpress:uuid:stranger", 0)] {
        options.hostnqn = name.to_string();
        for address in [discovery, view.listen] {
            let mut host = Host::connect(address, options.clone()).unwrap();
            let sqe = LogFields::sqe(0, LogPage::Discovery.code(), 1024, 0);
            let log = host.admin_command(sqe, Transfer::In(1024)).unwrap().data;
            assert_eq!(read::<DiscoveryHeader>(&log).unwrap().numrec.get(), entries, "{name}");
        }
    }
    options.subnqn = view.nqn.clone();
    options.hostnqn = friend.to_string();
    let wrong_door = Host::connect(discovery, options);
    assert!(wrong_door.unwrap_err().to_string().contains("(182h)"), "the subsystem is not served there");
}

#[test]
fn addresses_that_others_reach_need_a_word() {
    let env = Env::new();
    for (args, code, text) in [
        (vec!["--nvme-tcp", "0.0.0.0:0"], 2, "add --allow-remote"),
        (vec!["--nvme-tcp", LOCAL, "--discovery", "[::]:0"], 2, "add --allow-remote"),
        (vec!["--discovery", LOCAL], 2, "give --nvme-tcp"),
        (vec!["--allow-host", "nqn.a"], 2, "give --nvme-tcp"),
        (vec!["--nvme-tcp", LOCAL, "--allow-host", "host"], 2, "begins with"),
        (vec!["--nvme-tcp", "localhost"], 2, "invalid"),
        (vec!["--nvme-tcp", "192.0.2.1:4420", "--allow-remote"], 1, "choose another address"),
    ] {
        let mut all = vec!["add", "--no-ublk", "--name", "a", "--memory", "64M"];
        all.extend(&args);
        let output = env.ublk(&all);
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        assert!(output.stderr.contains(text), "{args:?}: {output:?}");
    }
    let view = disk(&env, "a", &["--allow-remote"]);
    let taken = view.listen.to_string();
    let output = env.ublk(&["add", "--no-ublk", "--name", "b", "--memory", "64M", "--nvme-tcp", &taken]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("in use"), "{output:?}");
    assert!(!env.ok(&["list"]).contains("disk b"), "nothing is left behind");
    let toml = env.ok(&["info", "-n", "a", "--toml"]);
    assert!(toml.contains("nvme-tcp = \"127.0.0.1:0\"") && toml.contains("allow-remote = true"), "{toml}");
}

#[test]
fn a_silent_host_loses_its_controller() {
    let env = Env::new();
    let view = disk(&env, "a", &[]);
    let mut silent = host(&view, |options| options.kato = 1000);
    let mut io = silent.io_queue(1).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        silent.admin_command(Sqe::new(AdminOpcode::KeepAlive.code(), 0), Transfer::None).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    write(&mut io, 1, 0, &[1; 512]);
    until("the controller is gone", || self::view(&env, "a", "a").hosts.is_empty());
    assert!(io.run(Sqe::io(IoOpcode::Read, 1, 0, 1), Transfer::In(512)).is_err());
    let again = host(&view, |_| {});
    let mut io = again.io_queue(1).unwrap();
    assert!(read_blocks(&mut io, 1, 0, 1) == [1; 512]);
}

/// Sends bytes and reads until the server closes; true when it did, within the time of a connection that says
/// nothing useful.
fn closes(address: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = stream.write_all(bytes);
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn what_is_no_host_is_shown_the_door_and_no_host_notices() {
    let env = Env::new();
    let view = disk(&env, "a", &[]);
    let good = host(&view, |_| {});
    let mut io = good.io_queue(1).unwrap();
    let icreq = {
        let mut bytes = vec![0; 128];
        bytes[..8].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0]);
        bytes
    };
    let mut hostile: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        vec![0; 4096],
        [icreq.clone(), icreq.clone()].concat(),
        [icreq.clone(), vec![4, 0, 72, 0, 0xff, 0xff, 0xff, 0xff]].concat(),
        [icreq.clone(), vec![6, 4, 24, 24, 32, 0, 0, 0], vec![0; 24]].concat(),
    ];
    let mut seed = 1u64;
    for _ in 0..20 {
        let mut next = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 56) as u8
        };
        let mut bytes = icreq.clone();
        // An unknown type, so that the end comes at once.
        bytes.push(0x80 | next());
        bytes.extend((0..500).map(|_| next()));
        hostile.push(bytes);
    }
    for bytes in &hostile {
        assert!(closes(view.listen, bytes), "{:?}", &bytes[..bytes.len().min(16)]);
    }
    // Slow: one byte at a time is fine, and so is leaving in the middle.
    let mut slow = TcpStream::connect(view.listen).unwrap();
    for byte in &icreq {
        slow.write_all(&[*byte]).unwrap();
    }
    let mut icresp = [0; 128];
    slow.read_exact(&mut icresp).unwrap();
    assert_eq!(icresp[..8], [1, 0, 128, 0, 128, 0, 0, 0]);
    slow.write_all(&[4, 0, 72]).unwrap();
    drop(slow);
    // A host that vanishes with commands under way.
    let gone = host(&view, |_| {});
    let mut queue = gone.io_queue(1).unwrap();
    for n in 0..100 {
        queue.submit(Sqe::io(IoOpcode::Write, 1, n * 2048, 2048), Transfer::Out(vec![9; 1 << 20]));
    }
    queue.send().unwrap();
    drop((queue, gone));
    write(&mut io, 1, 7, &[3; 512]);
    assert!(read_blocks(&mut io, 1, 7, 1) == [3; 512]);
    until("the hostile ones are gone", || self::view(&env, "a", "a").hosts.len() == 1);
    let log = env.ok(&["log", "-n", "a"]);
    assert!(log.contains("was no host") && !log.contains("panic"), "{log}");
}

#[test]
fn the_bytes_on_the_sockets_are_those_of_the_formula() {
    let env = Env::new();
    let view = disk(&env, "a", &[]);
    let host = host(&view, |_| {});
    let mut io = host.io_queue(1).unwrap();
    write(&mut io, 1, 0, &pattern(1, 1 << 20));
    let socket = |link: &Link| {
        // What the kernel counted on this socket: bytes acknowledged and received, of the payload alone.
        let info = tcp_info(link.stream());
        (info.0, info.1)
    };
    for (ranges, commands) in [(1u64, 50u64), (2, 50), (128, 10)] {
        let list: Vec<_> = (0..ranges).map(|n| CopyRange::new(0, n * 16, 8)).collect();
        let before = socket(&io);
        for _ in 0..commands {
            let (sqe, data) = copy(1, 8192, CopyFormat::Same, &list);
            ok(&mut io, sqe, Transfer::Out(data));
        }
        let after = socket(&io);
        assert_eq!(after.0 - before.0, commands * (72 + 32 * ranges), "{ranges} ranges out");
        assert_eq!(after.1 - before.1, commands * 24, "{ranges} ranges back");
    }
    let before = socket(&io);
    for n in 0..50 {
        read_blocks(&mut io, 1, n * 8, 8);
        write(&mut io, 1, n * 8, &pattern(2, 4096));
    }
    let after = socket(&io);
    assert_eq!(after.0 - before.0, 50 * (72 + 72 + 4096));
    assert_eq!(after.1 - before.1, 50 * (24 + 4096 + 24 + 24));
    // What the server says is what the sockets carried, admin queue included.
    let (admin, queue) = (tcp_info(host.admin.stream()), tcp_info(io.stream()));
    until("the totals are up to date", || {
        let view = self::view(&env, "a", "a");
        (view.received_bytes, view.sent_bytes) == (admin.0 + queue.0, admin.1 + queue.1)
    });
}

/// Bytes of payload sent and acknowledged, and received, by a socket that has nothing on the way.
fn tcp_info(stream: &TcpStream) -> (u64, u64) {
    use std::os::fd::AsRawFd;
    // tcpi_bytes_acked and tcpi_bytes_received: `struct tcp_info` of linux/tcp.h, at 120 and 128.
    let mut info = [0u8; 256];
    let mut len = info.len() as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the buffer and its length are those of `info`, which lives through the call; the kernel writes no more.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &raw mut len)
    };
    assert_eq!(result, 0);
    assert!(len >= 136, "a kernel that counts bytes");
    let at = |start: usize| u64::from_le_bytes(info[start..start + 8].try_into().unwrap());
    // The first byte that is acknowledged is the SYN.
    (at(120) - 1, at(128))
}
