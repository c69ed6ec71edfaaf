//! curl as a contender: it fetches from a small HTTP server on the first host, and what it writes is compared with what was served.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::pattern::Pattern;
use super::program::Program;
use super::realtime::prefer_contender;
use super::run::Arrivals;
use super::tcp;
use super::timeline::Timeline;
use crate::scenario::Scenario;

/// The server is ours.
pub(crate) const PROGRAMS: [Program; 1] = [Program { name: "curl", package: "curl", asked: &["--version"] }];

/// curl's code for the end of its time, which is how an endless download ends.
const TIME_IS_OVER: i32 = 28;

/// Downloads for the length of the scenario, by the kernel's own congestion control.
pub(super) fn run(path: &ContenderPath<'_>, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let near = path.near;
    let listener = path.chain.first().enter(|| TcpListener::bind((near, 0)))??;
    let address = listener.local_addr()?;
    let (limit, seed) = (scenario.seconds.0, scenario.seed);
    let over = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let server = {
        let over = Arc::clone(&over);
        path.chain.first().spawn_thread("http-server", move || serve(&listener, seed, limit, start, &over))?
    };
    let mut command = path.chain.last().command("curl");
    command.args(["--silent", "--show-error", "--max-time", &limit.as_secs_f64().to_string(), &url(address)]);
    started();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let read = child.stdout.take().map_or_else(|| Ok((Timeline::default(), 0)), |output| receive(output, seed));
    let end = child.wait_with_output()?;
    over.store(true, Ordering::Release);
    server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    let (timeline, wrong) = read?;
    match end.status.code() {
        Some(0 | TIME_IS_OVER) => Ok(Arrivals { bytes_wrong: Some(wrong), ..Arrivals::of(timeline) }),
        _ => Err(ContestError::Process(format!("curl failed ({}): {}", end.status, String::from_utf8_lossy(&end.stderr).trim()))),
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// What curl writes, as it comes.
fn receive(mut output: impl Read, seed: u64) -> io::Result<(Timeline, u64)> {
    let (start, mut timeline, mut wrong) = (Instant::now(), Timeline::default(), 0);
    let mut pattern = Pattern::new(seed);
    let mut chunk = vec![0u8; 256 << 10];
    loop {
        match output.read(&mut chunk)? {
            0 => return Ok((timeline, wrong)),
            length => {
                timeline.record(start.elapsed(), length as u64);
                wrong += pattern.differing(&chunk[..length]);
            }
        }
    }
}

/// Answers one request with a body that ends with the connection (RFC 9112 section 6.3).
fn serve(listener: &TcpListener, seed: u64, limit: Duration, start: Instant, over: &AtomicBool) -> io::Result<()> {
    prefer_contender();
    let Some(mut stream) = tcp::accept(listener, limit, start, over)? else { return Ok(()) };
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(tcp::POLL))?;
    let mut request = BufReader::new(stream.try_clone()?.take(16 << 10));
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n")?;
    let (mut pattern, mut chunk, mut held) = (Pattern::new(seed), vec![0u8; 256 << 10], 0..0);
    while !over.load(Ordering::Acquire) {
        if held.is_empty() {
            pattern.read_exact(&mut chunk)?;
            held = 0..chunk.len();
        }
        match stream.write(&chunk[held.clone()]) {
            Ok(written) => held.start += written,
            Err(error) if tcp::is_timeout(&error) => {}
            // curl's time is over.
            Err(_) => break,
        }
    }
    Ok(())
}
