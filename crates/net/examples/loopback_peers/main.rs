//! noctule beside quinn and kcptun over loopback, in turns: one flow, encrypted with AES-128-GCM, UDP payload of at most 1472 bytes, two processes of one
//! thread each (kcptun: its own two processes and two threads of this one, which are not counted).
//!
//! `cargo run --release -p noctule --example loopback_peers -- [--seconds 5] [--rounds 3]`
//!
//! `quinn` writes from the application's buffer, as noctule does; `quinn-chunks` hands over one reference-counted buffer again and again, which saves it
//! a copy and keeps the source in the cache.
//!
//! Goodput is what the receiving end read between its first and its last byte; CPU time is that of both processes, by `wait4`. Cycles per byte
//! are CPU time x the clock that the kernel states, so they are right only where that clock is the real one.

mod kcptun;
mod noctule_end;
mod quinn_end;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// UDP payload that every contender may use at most.
const DATAGRAM: u16 = 1472;
/// What an application hands over at once.
const BLOCK: usize = 256 * 1024;

/// One run of one contender.
struct Outcome {
    /// Bytes that the receiving end read.
    bytes: u64,
    /// From its first to its last byte.
    seconds: f64,
    /// User and system time of both processes.
    cpu: Duration,
}

impl Outcome {
    fn gbit(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }

    fn cpu_per_gbit(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 * 8e-9)
    }
}

/// Waits for a process and says how much CPU time it used.
fn reap(child: Child) -> Result<Duration, String> {
    let pid = libc::pid_t::try_from(child.id()).map_err(|e| e.to_string())?;
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to locals of the right type; rusage is plain integers.
    let (reaped, usage) = unsafe { (libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()), usage.assume_init()) };
    if reaped != pid {
        return Err(format!("wait4: {}", std::io::Error::last_os_error()));
    }
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Starts this program again in one of its roles.
fn role(arguments: &[&str]) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().map_err(|e| format!("cannot start {arguments:?}: {e}"))
}

/// A receiving and a sending process of this program: the receiver prints its address, then bytes and seconds.
fn two_processes(name: &str, seconds: f64) -> Result<Outcome, String> {
    let mut receiver = role(&[&format!("{name}-receiver")])?;
    let mut lines = BufReader::new(receiver.stdout.take().ok_or("no output")?).lines();
    let mut line = || lines.next().ok_or(format!("the {name} receiver ended early"))?.map_err(|e| e.to_string());
    let address = line()?;
    let sender = role(&[&format!("{name}-sender"), &address, &seconds.to_string()])?;
    let result = line()?;
    let (bytes, taken) = result.split_once(' ').ok_or(format!("the {name} receiver printed {result:?}"))?;
    let bytes = bytes.parse().map_err(|e| format!("{bytes}: {e}"))?;
    let taken = taken.parse().map_err(|e| format!("{taken}: {e}"))?;
    Ok(Outcome { bytes, seconds: taken, cpu: reap(sender)? + reap(receiver)? })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Clock of the first core as the kernel states it.
fn clock_ghz() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    Some(line.split(':').nth(1)?.trim().parse::<f64>().ok()? * 1e-3)
}

fn compare(seconds: f64, rounds: usize) -> Result<(), String> {
    let mut contenders: Vec<(&str, Vec<Outcome>)> =
        vec![("noctule", vec![]), ("noctule-chunks", vec![]), ("quinn", vec![]), ("quinn-chunks", vec![])];
    if kcptun::is_installed() {
        contenders.push(("kcptun", vec![]));
    } else {
        println!("kcptun is not installed and left out (Debian: apt install kcptun)");
    }
    for round in 1..=rounds {
        for (name, outcomes) in &mut contenders {
            let outcome = if *name == "kcptun" { kcptun::run(seconds)? } else { two_processes(name, seconds)? };
            println!("round {round}: {name:14} {:6.3} Gbit/s, {:.3} CPU s per Gbit", outcome.gbit(), outcome.cpu_per_gbit());
            outcomes.push(outcome);
        }
    }
    println!("\n| medians of {rounds} | Gbit/s | CPU s per Gbit, both ends | Gbit/s per core | cycles per byte |\n|---|---|---|---|---|");
    for (name, outcomes) in &contenders {
        let gbit = median(&mut outcomes.iter().map(Outcome::gbit).collect::<Vec<_>>());
        let cpu = median(&mut outcomes.iter().map(Outcome::cpu_per_gbit).collect::<Vec<_>>());
        let cycles = clock_ghz().map_or("-".to_owned(), |ghz| format!("{:.1}", cpu * ghz * 8.0));
        println!("| {name} | {gbit:.2} | {cpu:.3} | {:.2} | {cycles} |", 1.0 / cpu);
    }
    Ok(())
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["noctule-receiver" | "noctule-chunks-receiver"] => runtime().block_on(noctule_end::receive()),
        ["noctule-sender", to, seconds] => runtime().block_on(noctule_end::send(to, parse(seconds)?, false)),
        ["noctule-chunks-sender", to, seconds] => runtime().block_on(noctule_end::send(to, parse(seconds)?, true)),
        ["quinn-receiver" | "quinn-chunks-receiver"] => runtime().block_on(quinn_end::receive()),
        ["quinn-sender", to, seconds] => runtime().block_on(quinn_end::send(to, parse(seconds)?, false)),
        ["quinn-chunks-sender", to, seconds] => runtime().block_on(quinn_end::send(to, parse(seconds)?, true)),
        _ => {
            let (mut seconds, mut rounds) = (5.0, 3);
            for pair in words.chunks(2) {
                match *pair {
                    ["--seconds", value] => seconds = parse(value)?,
                    ["--rounds", value] => rounds = parse(value)?.max(1.0) as usize,
                    _ => return Err(format!("{pair:?} is not --seconds N or --rounds N")),
                }
            }
            compare(seconds, rounds)
        }
    }
}

fn parse(value: &str) -> Result<f64, String> {
    value.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0).ok_or(format!("{value} is not a number above 0"))
}
