//! SRT as a contender: a live stream at a rate that is set by hand (`srt-live-transmit`), or a file (`srt-file-transmit`).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::noctule::{Protocol, wait_for_port};
use super::pattern::{self, Pattern};
use super::process::Process;
use super::program::Program;
use super::realtime::prefer_contender;
use super::run::{Arrivals, file_bytes};
use super::scratch::Scratch;
use super::tcp;
use super::timeline::Timeline;
use crate::scenario::{Limits, Scenario};

/// What carries a stream.
pub(crate) const LIVE: [Program; 1] = [Program { name: "srt-live-transmit", package: "srt-tools", asked: &["-version"] }];
/// What carries a file.
pub(crate) const FILE: [Program; 1] = [Program { name: "srt-file-transmit", package: "srt-tools", asked: &["-version"] }];

/// Of the listener.
const PORT: u16 = 9000;
/// Where the stream enters on the near host, and where it comes out on the far one.
const ENTRY: u16 = 9001;
const EXIT: u16 = 9002;
const READY: Duration = Duration::from_secs(5);
/// A handshake over a bad path repeats each quarter of a second.
const CONNECT: Duration = Duration::from_secs(20);
/// A live stream has no rate of its own: this part of the path's limit is offered.
const LOAD: f64 = 0.95;
/// SRT's own header of a packet.
const HEADER: u32 = 16;
/// It takes no longer payload of a live stream.
const MOST_PAYLOAD: u32 = 1456;
/// Number of a datagram, at its beginning.
const NUMBER: usize = 8;
/// A receiver holds packets back for so many round trips, and no less than SRT's default.
const LATENCY_ROUND_TRIPS: u32 = 4;
const LEAST_LATENCY: Duration = Duration::from_millis(120);
/// What is still under way at the end of the run is read for so long.
const DRAIN: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
/// Packets in flight at most: twice what the path and the latency hold, and no less than SRT's default.
const LEAST_WINDOW: u64 = 25_600;

/// What both ends are told.
#[derive(Debug, Clone, PartialEq)]
struct Stream {
    payload: u32,
    latency: Duration,
    mtu: u32,
    window: u64,
    /// Ceiling of the sender, bytes per second.
    ceiling: Option<u64>,
    /// What is offered, bytes per second.
    offered: f64,
}

impl Stream {
    fn of(scenario: &Scenario) -> Self {
        let mtu = scenario.least_mtu();
        let payload = (mtu - scenario.ip.overhead() - HEADER).min(MOST_PAYLOAD);
        let latency = LEAST_LATENCY.max(LATENCY_ROUND_TRIPS * scenario.base_rtt());
        let rate = scenario.slowest();
        let held = rate.map_or(0, |rate| rate.bytes_in(latency + scenario.base_rtt()));
        let window = LEAST_WINDOW.max(2 * held / u64::from(payload));
        let ceiling = rate.map(|rate| rate.bytes_in(Duration::from_secs(1)));
        Self { payload, latency, mtu, window, ceiling, offered: Limits::of(scenario).forward * LOAD / 8.0 }
    }

    /// Nothing is dropped for being late: every contender here is to deliver all bytes.
    fn live_options(&self) -> String {
        let ceiling = self.ceiling.map_or(String::new(), |bytes| format!("&maxbw={bytes}"));
        format!("payloadsize={}&latency={}&tlpktdrop=0{ceiling}&{}", self.payload, self.latency.as_millis(), self.buffers())
    }

    /// SRT's own buffers where they hold the path twice: larger ones than that let a lossy path drown in repeated packets.
    fn file_options(&self) -> String {
        match self.window > LEAST_WINDOW {
            true => format!("transtype=file&{}", self.buffers()),
            false => format!("transtype=file&mss={}", self.mtu),
        }
    }

    fn buffers(&self) -> String {
        let bytes = self.window * u64::from(self.mtu);
        format!("mss={}&fc={}&sndbuf={bytes}&rcvbuf={bytes}", self.mtu, self.window)
    }
}

/// A stream of datagrams by the clock, every one numbered and compared where it comes out.
pub(super) fn run_live(path: &ContenderPath<'_>, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let stream = Stream::of(scenario);
    if !stream.offered.is_finite() {
        return Err(ContestError::Unsupported("an SRT stream offers a share of the path's limit: give the links a rate".to_owned()));
    }
    let (near, far) = (path.chain.first(), path.chain.last());
    let here = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let (chunk, options) = (stream.payload.to_string(), stream.live_options());
    let listening = format!("srt://{}?mode=listener&{options}", SocketAddr::new(path.far, PORT));
    let mut command = far.command(LIVE[0].name);
    let mut receiver = Process::start(command.args(["-c", &chunk, "-a", "no", &listening, &format!("udp://{}", here(EXIT))]), |_| {})?;
    wait_for_port(far, Protocol::Udp, PORT, READY, &mut receiver)?;
    let exit = far.enter(|| -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(here(EXIT))?;
        socket.set_read_timeout(Some(tcp::POLL))?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(8 << 20)?;
        Ok(socket)
    })??;
    started();
    let start = Instant::now();
    let seconds = scenario.seconds.0;
    let over = Arc::new(AtomicBool::new(false));
    let receiving = far.spawn_thread("srt-stream-reader", {
        let (over, seed, length) = (Arc::clone(&over), scenario.seed, stream.payload as usize);
        move || read_stream(&exit, seed, length, start, &over)
    })?;
    let calling = format!("srt://{}?{options}", SocketAddr::new(path.far, PORT));
    let mut command = near.command(LIVE[0].name);
    let mut sender = Process::start(command.args(["-c", &chunk, "-a", "no", &format!("udp://{}", here(ENTRY)), &calling]), |_| {})?;
    // What it reads before it is connected it throws away.
    sender.wait_until(CONNECT, "had no connection", |sender| Ok(sender.complaint().contains("SRT target connected")))?;
    wait_for_port(near, Protocol::Udp, ENTRY, READY, &mut sender)?;
    let sent = Arc::new(AtomicU64::new(0));
    let sending = near.spawn_thread("srt-stream-writer", {
        let (sent, stream, seed) = (Arc::clone(&sent), stream.clone(), scenario.seed);
        move || write_stream(here(ENTRY), &stream, seed, start + seconds, &sent)
    })?;
    let sending = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    std::thread::sleep(stream.latency + scenario.base_rtt() + DRAIN);
    over.store(true, Ordering::Release);
    let read = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    sending??;
    for process in [&mut sender, &mut receiver] {
        if let Some(status) = process.try_wait()? {
            return Err(ContestError::Process(format!("srt-live-transmit ended ({status}): {}", process.complaint())));
        }
    }
    let sent = sent.load(Ordering::Acquire);
    let contender = serde_json::json!({
        "offered_mbit": crate::report::round(stream.offered * 8e-6, 4), "latency_ms": stream.latency.as_millis() as u64,
        "datagrams_sent": sent, "datagrams_received": read.count,
    });
    let lost = (sent > 0).then(|| crate::report::round(1.0 - read.count as f64 / sent as f64, 6).max(0.0));
    Ok(Arrivals { bytes_wrong: Some(read.wrong), residual_loss: lost, contender: Some(contender), ..Arrivals::of(read.timeline) })
}

/// What came out.
struct Read {
    timeline: Timeline,
    count: u64,
    wrong: u64,
}

fn read_stream(socket: &UdpSocket, seed: u64, length: usize, start: Instant, over: &AtomicBool) -> io::Result<Read> {
    prefer_contender();
    let mut read = Read { timeline: Timeline::default(), count: 0, wrong: 0 };
    let (mut pattern, mut datagram) = (Pattern::new(seed), vec![0u8; 65_536]);
    while !over.load(Ordering::Acquire) {
        let size = match socket.recv(&mut datagram) {
            Ok(size) => size,
            Err(error) if tcp::is_timeout(&error) => continue,
            Err(error) => return Err(error),
        };
        read.count += 1;
        read.timeline.record(start.elapsed(), size as u64);
        read.wrong += match datagram[..size].split_first_chunk::<NUMBER>() {
            Some((number, content)) if size == length => {
                pattern.seek(place(u64::from_be_bytes(*number), length));
                pattern.differing(content)
            }
            _ => size as u64,
        };
    }
    Ok(read)
}

fn write_stream(to: SocketAddr, stream: &Stream, seed: u64, end: Instant, sent: &AtomicU64) -> io::Result<()> {
    prefer_contender();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(to)?;
    let length = stream.payload as usize;
    let (mut pattern, mut datagram) = (Pattern::new(seed), vec![0u8; length]);
    let (start, interval) = (Instant::now(), f64::from(stream.payload) / stream.offered);
    let mut due = start;
    for number in 0u64.. {
        // After a pause of this machine it catches up at twice the rate: a burst would not fit the program's socket.
        due = (start + Duration::from_secs_f64(number as f64 * interval)).max(due + Duration::from_secs_f64(interval / 2.0));
        if due >= end {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due = due.max(Instant::now());
        datagram[..NUMBER].copy_from_slice(&number.to_be_bytes());
        pattern.seek(place(number, length));
        fill(&mut pattern, &mut datagram[NUMBER..])?;
        socket.send(&datagram)?;
        sent.store(number + 1, Ordering::Release);
    }
    Ok(())
}

/// Where the content of a datagram begins in the pattern.
fn place(number: u64, length: usize) -> u64 {
    number.wrapping_mul((length - NUMBER) as u64)
}

fn fill(pattern: &mut Pattern, bytes: &mut [u8]) -> io::Result<()> {
    io::Read::read_exact(pattern, bytes)
}

/// A file that fills the path for the length of the scenario; what the receiver has written is read as it grows.
pub(super) fn run_file(path: &ContenderPath<'_>, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let bytes = file_bytes(scenario, "srt-file-transmit")?;
    let options = Stream::of(scenario).file_options();
    let scratch = Scratch::new("noctule-lab-srt")?;
    let (source, folder) = (scratch.path().join("file"), scratch.path().join("received"));
    pattern::write_file(&source, scenario.seed, bytes)?;
    std::fs::create_dir(&folder)?;
    let (near, far, program) = (path.chain.first(), path.chain.last(), FILE[0].name);
    let address = SocketAddr::new(path.far, PORT);
    let mut command = far.command(program);
    command.args(["-q", &format!("srt://{address}?mode=listener&{options}"), &format!("file://{}/", folder.display())]);
    let mut receiver = Process::start(&mut command, |_| {})?;
    wait_for_port(far, Protocol::Udp, PORT, READY, &mut receiver)?;
    let mut command = near.command(program);
    command.args(["-q", &format!("file://{}", source.display()), &format!("srt://{address}?{options}")]);
    started();
    let start = Instant::now();
    let mut sender = Process::start(&mut command, |_| {})?;
    let (mut timeline, mut seen) = (Timeline::default(), 0);
    let received = folder.join("file");
    while start.elapsed() < scenario.seconds.0 {
        let ended = sender.try_wait()?;
        let length = length_of(&received)?;
        timeline.record(start.elapsed(), length.saturating_sub(seen));
        seen = length;
        match ended {
            Some(status) if !status.success() => {
                return Err(ContestError::Process(format!("srt-file-transmit failed ({status}): {}", sender.complaint())));
            }
            Some(_) if seen == bytes => break,
            _ => std::thread::sleep(POLL),
        }
    }
    drop((sender, receiver));
    let wrong = if seen == 0 { 0 } else { pattern::differing_in_file(&received, scenario.seed)? };
    Ok(Arrivals { bytes_wrong: Some(wrong), ..Arrivals::of(timeline) })
}

fn length_of(file: &Path) -> io::Result<u64> {
    match std::fs::metadata(file) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::scenario::Hop;

    fn over_link(list: &str) -> Scenario {
        let mut spec = LinkSpec::default();
        spec.set_list(list).unwrap();
        Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }])
    }

    #[test]
    fn a_stream_is_told_rate_latency_and_window_of_the_path() {
        let stream = Stream::of(&over_link("rate=50mbit,delay=100ms"));
        assert_eq!((stream.payload, stream.latency), (1456, Duration::from_millis(800)));
        let options = stream.live_options();
        for word in ["payloadsize=1456", "latency=800", "tlpktdrop=0", "maxbw=6250000", "mss=1500", "fc=25600"] {
            assert!(options.split('&').any(|option| option == word), "{word} in {options}");
        }
        assert!((stream.offered * 8e-6 - 50.0 * 1472.0 / 1500.0 * LOAD).abs() < 1e-6, "{}", stream.offered);
        assert_eq!(Stream::of(&over_link("rate=50mbit,delay=1ms")).latency, LEAST_LATENCY);
        assert!(Stream::of(&over_link("rate=1gbit,delay=200ms")).window > LEAST_WINDOW);
        assert!(Stream::of(&over_link("rate=50mbit")).file_options().starts_with("transtype=file&mss=1500"));
    }

    #[test]
    fn what_comes_out_is_compared_by_its_number() {
        let here = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (exit, other) = (here(), here());
        exit.set_read_timeout(Some(tcp::POLL)).unwrap();
        let to = exit.local_addr().unwrap();
        let stream = Stream { offered: 1e6, ..Stream::of(&over_link("rate=50mbit")) };
        let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let read = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_stream(&exit, 7, 1456, Instant::now(), &over).unwrap());
            write_stream(to, &stream, 7, Instant::now() + Duration::from_millis(50), &sent).unwrap();
            // One byte of datagram 3 is another; 10 bytes are no datagram of the stream.
            let mut datagram = vec![0u8; 1456];
            datagram[..NUMBER].copy_from_slice(&3u64.to_be_bytes());
            let mut pattern = Pattern::new(7);
            pattern.seek(place(3, 1456));
            fill(&mut pattern, &mut datagram[NUMBER..]).unwrap();
            datagram[100] ^= 1;
            other.send_to(&datagram, to).unwrap();
            other.send_to(&datagram[..10], to).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            over.store(true, Ordering::Release);
            reading.join().unwrap()
        });
        assert!(sent.load(Ordering::Acquire) > 0);
        assert_eq!((read.count, read.wrong), (sent.load(Ordering::Acquire) + 2, 11));
    }
}
