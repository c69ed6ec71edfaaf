//! Small messages that the far end sends back: on one connection at a fixed rate, and the first one of fresh connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::course::{Lane, connect};
use super::table::Figure;
use crate::net::contest::ContestError;
use crate::scenario::Workload;

/// Fresh connections whose first message is timed.
const FRESH: usize = 15;

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}

/// Round trips of messages at the workload's rate, for the length of the scenario.
pub(super) fn stream(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    let Workload::Messages { interval, size } = lane.scenario.workload else {
        return Err(ContestError::Unsupported("messages need --workload messages:100/s:512B".to_owned()));
    };
    let size = size.max(8);
    let count = (lane.scenario.seconds.0.as_secs_f64() / interval.0.as_secs_f64()) as u64;
    let _server = lane.serve(2, echo)?;
    let address = lane.address();
    let mut times = lane.near.enter(|| exchange(address, interval.0, size, count))??;
    let received = times.len();
    if received == 0 {
        return Err(ContestError::Process("no message came back".to_owned()));
    }
    times.sort();
    let quantile = |q: f64| ms(times[((received as f64 * q).ceil() as usize).clamp(1, received) - 1]);
    let mean = ms(times.iter().sum::<Duration>()) / received as f64;
    let mut figures = vec![Figure::new("mean ms", mean)];
    figures.extend([0.5, 0.9, 0.99, 0.999, 1.0].map(|q| Figure::new(&format!("p{} ms", q * 100.0), quantile(q))));
    figures.push(Figure::new("unanswered", (count - received as u64) as f64));
    Ok(figures)
}

/// Sends by the clock, whatever has come back: late answers do not make the load less.
fn exchange(address: SocketAddr, interval: Duration, size: usize, count: u64) -> io::Result<Vec<Duration>> {
    let mut there = connect(address)?;
    let mut back = there.try_clone()?;
    let start = Instant::now();
    let due = move |number: u64| interval.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
    let reading = std::thread::spawn(move || -> Vec<Duration> {
        let (mut buffer, mut times) = (vec![0u8; size], Vec::new());
        while (times.len() as u64) < count && back.read_exact(&mut buffer).is_ok() {
            let mut sent = [0; 8];
            sent.copy_from_slice(&buffer[..8]);
            times.push(start.elapsed().saturating_sub(Duration::from_nanos(u64::from_le_bytes(sent))));
        }
        times
    });
    let mut message = vec![0u8; size];
    for number in 0..count {
        std::thread::sleep((start + due(number)).saturating_duration_since(Instant::now()));
        // A message is as old as the moment at which it was due: a sender that is held up does not hide it.
        message[..8].copy_from_slice(&(due(number).as_nanos() as u64).to_le_bytes());
        match there.write_all(&message) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// From before `connect` to the echo of the first byte, on fresh connections while the contender's own session is warm.
pub(super) fn first(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    let _server = lane.serve(2, echo)?;
    let address = lane.address();
    let times = lane.near.enter(|| -> io::Result<Vec<Duration>> {
        // The first of all is not counted: it warms the contender up.
        let mut times = Vec::new();
        for _ in 0..=FRESH {
            let start = Instant::now();
            let mut stream = connect(address)?;
            stream.write_all(&[7; 512])?;
            stream.read_exact(&mut [0; 512])?;
            times.push(start.elapsed());
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(times.split_off(1))
    })??;
    let mean = ms(times.iter().sum()) / times.len() as f64;
    let most = times.iter().max().copied().unwrap_or_default();
    let rtt = ms(lane.scenario.base_rtt());
    Ok(vec![Figure::new("mean ms", mean), Figure::new("mean RTTs", mean / rtt), Figure::new("longest ms", ms(most))])
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
