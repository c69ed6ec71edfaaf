//! UFTP as a contender: one file at a rate that is set by hand, to one receiver, counted when all of it is there.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::noctule::{Protocol, wait_for_port};
use super::pattern;
use super::process::Process;
use super::program::Program;
use super::run::{Arrivals, file_bytes};
use super::scratch::Scratch;
use super::timeline::Timeline;
use crate::scenario::Scenario;

/// Both ends. The sender says its version before it looks at the file; the address keeps its announcement on the host.
pub(crate) const PROGRAMS: [Program; 2] = [
    Program { name: "uftp", package: "uftp", asked: &["-M", "127.0.0.1", "/dev/null"] },
    Program { name: "uftpd", package: "uftp", asked: &[] },
];

/// UFTP's port.
const PORT: u16 = 1044;
const READY: Duration = Duration::from_secs(5);
/// A sender that knows its receiver by number does not wait for others to register.
const RECEIVER: &str = "0x00000002";
/// uftp(1), `-b`: a block is 100 to 200 bytes shorter than the MTU.
const HEADERS: u32 = 100;
/// `-R` counts blocks and UFTP's own headers, not those of UDP and IP.
const RATE_SHARE: f64 = 0.97;
const SOCKET_BUFFER: &str = "16777216";
const NAME: &str = "received";
const POLL: Duration = Duration::from_millis(5);

/// Sends a file that fills the path for the length of the scenario, and waits as long again for the end of it.
pub(super) fn run(path: &ContenderPath<'_>, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let bytes = file_bytes(scenario, "UFTP")?;
    let scratch = Scratch::new("noctule-lab-uftp")?;
    let (source, arriving, whole) = (scratch.path().join("file"), scratch.path().join("arriving"), scratch.path().join("whole"));
    pattern::write_file(&source, scenario.seed, bytes)?;
    for folder in [&arriving, &whole] {
        std::fs::create_dir(folder)?;
    }
    let (near, far) = (path.near.to_string(), path.far.to_string());
    let mut command = path.chain.last().command("uftpd");
    let mut receiver = Process::start(command.args(receiver_words(path.far)).arg("-T").arg(&arriving).arg("-D").arg(&whole), |_| {})?;
    wait_for_port(path.chain.last(), Protocol::Udp, PORT, READY, &mut receiver)?;
    let mut command = path.chain.first().command("uftp");
    command.args(sender_words(scenario, &near, &far)?).arg(&source);
    started();
    let start = Instant::now();
    let mut sender = Process::start(&mut command, |_| {})?;
    let done = wait_for_file(&whole.join(NAME), &mut sender, start + 2 * scenario.seconds.0 + READY)?;
    let mut timeline = Timeline::default();
    let mut wrong = None;
    if let Some(done) = done {
        // The application has nothing before the end: the mean stands for each moment.
        timeline.record_between(Duration::ZERO, done.duration_since(start), bytes);
        wrong = Some(pattern::differing_in_file(&whole.join(NAME), scenario.seed)?);
    }
    let seconds = done.map(|done| crate::report::round(done.duration_since(start).as_secs_f64(), 3));
    let contender = serde_json::json!({ "file_bytes": bytes, "seconds_until_whole": seconds });
    Ok(Arrivals { bytes_wrong: wrong, contender: Some(contender), ..Arrivals::of(timeline) })
}

/// When the file was whole; none if it is not by the deadline, or the sender gave up.
fn wait_for_file(file: &Path, sender: &mut Process, deadline: Instant) -> Result<Option<Instant>, ContestError> {
    loop {
        let ended = sender.try_wait()?;
        if file.is_file() {
            return Ok(Some(Instant::now()));
        }
        match ended {
            // The receiver moves the file before it says that it has it.
            Some(status) if status.success() => return Ok(None),
            Some(status) => return Err(ContestError::Process(format!("uftp failed ({status}): {}", sender.complaint()))),
            None if Instant::now() >= deadline => return Ok(None),
            None => std::thread::sleep(POLL),
        }
    }
}

/// Its socket hears what is sent to its own address, too; `-M` names a multicast group only, whose default is one of IPv4.
fn receiver_words(address: IpAddr) -> Vec<String> {
    let group: &[&str] = if address.is_ipv6() { &["-M", "ff02::4:4:1"] } else { &[] };
    let words = ["-d", "-I", &address.to_string(), "-U", RECEIVER, "-B", SOCKET_BUFFER].map(str::to_owned);
    words.into_iter().chain(group.iter().map(|word| (*word).to_owned())).collect()
}

/// The rate is the slowest link's; the first guess of the round trip is the path's own.
fn sender_words(scenario: &Scenario, near: &str, far: &str) -> Result<Vec<String>, ContestError> {
    let rate = scenario.slowest();
    let rate =
        rate.ok_or_else(|| ContestError::Unsupported("UFTP sends at a rate that is set by hand: give the links a rate".to_owned()))?;
    let kbit = ((rate.bytes_in(Duration::from_secs(1)) * 8) as f64 / 1e3 * RATE_SHARE).max(1.0) as u64;
    let mtu = scenario.least_mtu();
    let block = mtu.saturating_sub(HEADERS).to_string();
    // Below 10 ms uftp takes no round trip.
    let round_trip = scenario.base_rtt().as_secs_f64().max(0.01);
    let round_trips = format!("{:.3}:{:.3}:15", round_trip * 1.5, round_trip);
    let words = ["-M", far, "-I", near, "-H", RECEIVER, "-R", &kbit.to_string(), "-C", "none", "-b", &block, "-r", &round_trips];
    Ok(words.iter().chain(&["-B", SOCKET_BUFFER, "-D", NAME]).map(|word| (*word).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::scenario::Hop;

    fn after<'a>(words: &'a [String], flag: &str) -> &'a str {
        &words[words.iter().position(|word| word == flag).unwrap() + 1]
    }

    #[test]
    fn the_sender_is_told_rate_blocks_and_round_trip_of_the_path() {
        let mut spec = LinkSpec::default();
        spec.set_list("rate=50mbit,delay=20ms").unwrap();
        let scenario = Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }]);
        let words = sender_words(&scenario, "10.77.0.1", "10.77.0.2").unwrap();
        assert_eq!(after(&words, "-R"), "48500");
        assert_eq!(after(&words, "-b"), "1400");
        assert_eq!(after(&words, "-r"), "0.060:0.040:15");
        assert_eq!((after(&words, "-M"), after(&words, "-I")), ("10.77.0.2", "10.77.0.1"));
        let receiver = receiver_words("10.77.0.2".parse().unwrap());
        assert_eq!(after(&words, "-H"), after(&receiver, "-U"));
        assert!(!receiver.contains(&"-M".to_owned()));
        assert_eq!(after(&receiver_words("fd77::2".parse().unwrap()), "-M"), "ff02::4:4:1");
    }

    #[test]
    fn a_path_without_a_rate_is_refused() {
        let scenario = Scenario::new(vec![Hop { forward: LinkSpec::default(), reverse: LinkSpec::default() }]);
        assert!(sender_words(&scenario, "a", "b").unwrap_err().to_string().contains("rate"));
    }
}
