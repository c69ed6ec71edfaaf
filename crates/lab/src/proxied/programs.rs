//! What people run: curl, redis-benchmark, pgbench, rsync.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::contender::{Contender, TARGET};
use super::course::Lane;
use super::table::Figure;
use crate::net::contest::ContestError;
use crate::net::noctule::{Protocol, wait_for_port};
use crate::net::process::Process;
use crate::net::scratch::Scratch;

/// Objects of a page, and the bytes of each.
const OBJECTS: usize = 100;
const OBJECT: usize = 20_000;
/// Connections of a browser to one host.
const CONNECTIONS: usize = 6;
/// Files of the tree; each is 2 KB longer than the one before it, up to twenty times.
const FILES: usize = 500;
const LONGEST: Duration = Duration::from_secs(120);
const READY: Duration = Duration::from_secs(10);
/// The account that Debian's and Fedora's packages make for PostgreSQL, whose server refuses to run as root.
const POSTGRES: &str = "postgres";
/// Clients of pgbench, and transactions of each.
const BENCH_CLIENTS: &str = "10";
const BENCH_TRANSACTIONS: &str = "20";
/// A branch for each client: with fewer, clients wait for the row of another one more than for the path.
const BENCH_SCALE: &str = BENCH_CLIENTS;

/// The server is not ours: its sockets have the kernel's default.
fn refuse_cubic(lane: &Lane<'_>) -> Result<(), ContestError> {
    match lane.contender {
        Contender::TcpCubic => {
            Err(ContestError::Unsupported("tcp-cubic: the congestion control of this server's sockets cannot be named".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Runs a program on the near host to its end and gives what it printed.
fn run(lane: &Lane<'_>, program: &str, words: &[&str]) -> Result<(String, Duration), ContestError> {
    let (heard, lines) = std::sync::mpsc::channel();
    let start = Instant::now();
    let mut command: Command = lane.near.command(program);
    // The receiver is gone only when this function has returned.
    let mut process =
        Process::start(command.args(words), move |line| drop(heard.send(line.to_owned()))).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ContestError::Unsupported(format!("there is no {program} on this machine: install it")),
            _ => ContestError::System(error),
        })?;
    match process.wait(start + LONGEST)? {
        Some(status) if status.success() => {}
        Some(status) => return Err(ContestError::Process(format!("{program} failed ({status}): {}", process.complaint()))),
        None => return Err(ContestError::Process(format!("{program} did not end within {LONGEST:?}"))),
    }
    let time = start.elapsed();
    let text: Vec<String> = lines.try_iter().collect();
    Ok((text.join("\n"), time))
}

/// Answers requests on a connection until it ends (RFC 9112).
fn http(mut stream: TcpStream) -> io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {OBJECT}\r\n\r\n");
    let answer = [head.as_bytes(), &[0x5a; OBJECT]].concat();
    let mut line = String::new();
    while requests.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            stream.write_all(&answer)?;
        }
        line.clear();
    }
    Ok(())
}

/// A page of 100 objects of 20 KB by curl, over at most six connections at once, as browsers do.
pub(super) fn objects(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    let _server = lane.serve(CONNECTIONS, http)?;
    let folder = Scratch::new("noctule-lab-objects")?;
    let url = format!("http://{}/[1-{OBJECTS}]", lane.address());
    let output = folder.path().join("#1").display().to_string();
    let parallel = CONNECTIONS.to_string();
    let (_, time) = run(lane, "curl", &["-sS", "--noproxy", "*", "-Z", "--parallel-max", &parallel, "-o", &output, &url])?;
    for number in 1..=OBJECTS {
        let bytes = fs::read(folder.path().join(number.to_string()))?;
        if bytes != [0x5a; OBJECT] {
            return Err(ContestError::Process(format!("object {number} is not what was sent")));
        }
    }
    Ok(vec![Figure::new("seconds", time.as_secs_f64())])
}

/// redis-benchmark: 20 clients that ask for a key, one request at a time each.
pub(super) fn redis(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    refuse_cubic(lane)?;
    let port = TARGET.to_string();
    let mut command = lane.far.command("redis-server");
    command.args(["--port", &port, "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no"]);
    let mut server = Process::start(&mut command, |_| {})
        .map_err(|_| ContestError::Unsupported("there is no redis-server on this machine".to_owned()))?;
    wait_for_port(&lane.far, Protocol::Tcp, TARGET, READY, &mut server)?;
    let (host, near) = (lane.address().ip().to_string(), lane.address().port().to_string());
    let (text, _) = run(lane, "redis-benchmark", &["-h", &host, "-p", &near, "-t", "get", "-n", "2000", "-c", "20", "--csv"])?;
    let line = text.lines().find(|line| line.starts_with("\"GET\"")).unwrap_or_default();
    let numbers: Vec<f64> = line.split(',').filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    // rps, avg_latency_ms, min_latency_ms, p50_latency_ms, p95_latency_ms, p99_latency_ms, max_latency_ms
    let [per_second, mean, _, p50, _, p99, most] = numbers[..] else {
        return Err(ContestError::Process(format!("redis-benchmark printed no figures of GET: {text}")));
    };
    Ok(vec![
        Figure::new("requests per second", per_second),
        Figure::new("mean ms", mean),
        Figure::new("p50 ms", p50),
        Figure::new("p99 ms", p99),
        Figure::new("longest ms", most),
    ])
}

/// pgbench, the transaction of TPC-B: ten clients with twenty transactions of seven statements each, one statement at a time.
pub(super) fn pgbench(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    refuse_cubic(lane)?;
    let programs = postgres_programs()?;
    let folder = Scratch::new("noctule-lab-pgbench")?;
    let (uid, gid) = account(POSTGRES)?;
    chown(folder.path(), Some(uid), Some(gid))?;
    let data = folder.path().join("data");
    let as_owner = |program: &str| {
        // Its shared memory goes with it, however it ends.
        let mut command = lane.far.command("unshare");
        command.args(["--ipc", "setpriv", "--reuid", POSTGRES, "--regid", POSTGRES, "--clear-groups", "--pdeathsig", "keep"]);
        command.arg(programs.join(program)).current_dir(folder.path());
        command
    };
    let finish = |mut command: Command, what: &str| -> Result<(), ContestError> {
        let mut process = Process::start(&mut command, |_| {})?;
        match process.wait(Instant::now() + LONGEST)? {
            Some(status) if status.success() => Ok(()),
            _ => Err(ContestError::Process(format!("{what} failed: {}", process.complaint()))),
        }
    };
    let mut init = as_owner("initdb");
    init.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"]).arg(&data);
    finish(init, "initdb")?;
    let port = TARGET.to_string();
    // Every host of these namespaces may come; there are no others.
    fs::write(data.join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\n")?;
    let mut command = as_owner("postgres");
    command
        .args([
            "-p",
            &port,
            "-h",
            "0.0.0.0",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
            "-c",
            "dynamic_shared_memory_type=sysv",
            "-D",
        ])
        .arg(&data);
    let mut server = Process::start(&mut command, |_| {})?;
    let mut run = || {
        wait_for_port(&lane.far, Protocol::Tcp, TARGET, READY, &mut server)?;
        let mut tables = as_owner("pgbench");
        tables.args(["--initialize", "--quiet", "--scale", BENCH_SCALE, "-h", "127.0.0.1", "-p", &port, "-U", POSTGRES, POSTGRES]);
        finish(tables, "pgbench --initialize")?;
        let (host, near) = (lane.address().ip().to_string(), lane.address().port().to_string());
        let bench = programs.join("pgbench").display().to_string();
        let counts = ["--no-vacuum", "--client", BENCH_CLIENTS, "--transactions", BENCH_TRANSACTIONS];
        let (text, _) = run(lane, &bench, &[&counts[..], &["-h", &host, "-p", &near, "-U", POSTGRES, POSTGRES]].concat())?;
        bench_figures(&text)
    };
    let figures = run();
    // In an orderly manner, also after a failure: nothing is written to its folder any more when that is removed.
    let mut stop = as_owner("pg_ctl");
    stop.args(["stop", "--mode=immediate", "-D"]).arg(&data);
    let stopped = finish(stop, "pg_ctl stop");
    let figures = figures?;
    stopped?;
    Ok(figures)
}

/// What pgbench prints at its end.
fn bench_figures(text: &str) -> Result<Vec<Figure>, ContestError> {
    let number = |label: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let (Some(per_second), Some(mean)) = (number("tps = "), number("latency average = ")) else {
        return Err(ContestError::Process(format!("pgbench printed no figures: {text}")));
    };
    Ok(vec![Figure::new("transactions per second", per_second), Figure::new("mean ms", mean)])
}

/// Where PostgreSQL's programs are: Debian keeps them by version, and outside of PATH.
fn postgres_programs() -> Result<PathBuf, ContestError> {
    let by_version = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let has_all = |folder: &PathBuf| ["initdb", "postgres", "pg_ctl", "pgbench"].iter().all(|name| folder.join(name).is_file());
    let mut found: Vec<PathBuf> = by_version.chain(std::env::split_paths(&in_path)).filter(has_all).collect();
    found.sort();
    found.pop().ok_or_else(|| {
        ContestError::Unsupported("there is no PostgreSQL server with pgbench on this machine: install postgresql".to_owned())
    })
}

/// Numbers of a user and its group.
fn account(name: &str) -> Result<(u32, u32), ContestError> {
    let users = fs::read_to_string("/etc/passwd")?;
    let number = |fields: &[&str], i: usize| fields.get(i).and_then(|field| field.parse().ok());
    users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name))
        .and_then(|fields| number(&fields, 2).zip(number(&fields, 3)))
        .ok_or_else(|| ContestError::Unsupported(format!("there is no user {name}, by which a PostgreSQL server runs")))
}

/// rsync of a tree of 500 files of 2 to 40 KB from a daemon on the far host.
pub(super) fn rsync(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    refuse_cubic(lane)?;
    let folder = Scratch::new("noctule-lab-rsync")?;
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let content = |number: usize| vec![number as u8; 2_000 * (1 + number % 20)];
    for number in 0..FILES {
        let name = file_of(&from, number);
        fs::create_dir_all(name.parent().unwrap_or(&from))?;
        fs::write(name, content(number))?;
    }
    let config = folder.path().join("rsyncd.conf");
    let uid = "uid = root\ngid = root\nuse chroot = no\n";
    fs::write(&config, format!("{uid}port = {TARGET}\n[tree]\npath = {}\nread only = yes\n", from.display()))?;
    let mut command = lane.far.command("rsync");
    command.args(["--daemon", "--no-detach", "--config"]).arg(&config);
    let mut server =
        Process::start(&mut command, |_| {}).map_err(|_| ContestError::Unsupported("there is no rsync on this machine".to_owned()))?;
    wait_for_port(&lane.far, Protocol::Tcp, TARGET, READY, &mut server)?;
    let url = format!("rsync://{}/tree/", lane.address());
    let (_, time) = run(lane, "rsync", &["-a", &url, &to.display().to_string()])?;
    for number in 0..FILES {
        if fs::read(file_of(&to, number))? != content(number) {
            return Err(ContestError::Process(format!("file {number} is not what was sent")));
        }
    }
    Ok(vec![Figure::new("seconds", time.as_secs_f64())])
}

fn file_of(root: &Path, number: usize) -> std::path::PathBuf {
    root.join(format!("d{}", number % 20)).join(format!("f{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_pgbench_are_found() {
        let text = "scaling factor: 1\nlatency average = 712.414 ms\ninitial connection time = 210.002 ms\ntps = 14.036782 (without initial connection time)";
        let figures = bench_figures(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(figures, [Figure::new("transactions per second", 14.036782), Figure::new("mean ms", 712.414)]);
        assert!(bench_figures("pgbench: error: connection refused").is_err());
    }
}
