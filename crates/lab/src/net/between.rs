//! `noctule-lab link`: an emulated link between two network namespaces that others have made, for as long as they need it.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use thiserror::Error;

use super::command::{UNFAITHFUL, fail};
use super::emulator::{Duplex, Emulator, Options, Report, Tolerance};
use super::end::{End, EndError, OpenEnd};
use super::signals;
use crate::link::{LinkFlags, LinkModel, LinkStats, Period, SpecError, Traces};
use crate::report::count;

/// Exit code when the link cannot be made.
const IMPOSSIBLE: u8 = 2;
/// How often it is looked whether the emulator still runs.
const LOOK: Duration = Duration::from_millis(200);

/// `noctule-lab link`.
#[derive(Debug, Clone, Args)]
pub struct LinkArgs {
    /// An end: a network namespace (the number of a process, a name of `ip netns list`, or a file), the TUN device to make in it, and its addresses.
    /// Given twice; the flags describe the link from the first to the second.
    #[arg(long, required = true, value_name = super::end::FORM)]
    pub between: Vec<End>,
    /// The link.
    #[command(flatten)]
    pub link: LinkFlags,
    /// Seed of everything random; links beside each other need different ones, or they lose the same packets.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Round trip that `bdp` in --queue refers to [default: that of this link].
    #[arg(long)]
    pub bdp_rtt: Option<Period>,
    /// End when standard input is closed, too, as happens when the process that started this one dies.
    #[arg(long)]
    pub until_eof: bool,
    /// Reject the run when the emulator's 99th percentile of lateness is above this [default: 3ms].
    #[arg(long)]
    pub max_lateness: Option<Period>,
    /// Print a JSON object on one line when the link is ready, and one at its end.
    #[arg(long)]
    pub json: bool,
}

/// Why there is no link.
#[derive(Debug, Error)]
enum LinkError {
    #[error("--between is given {}: a link has two ends", count(*.0, "time"))]
    Ends(usize),
    #[error(transparent)]
    End(#[from] EndError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("{step}: {error}")]
    System { step: &'static str, error: io::Error },
    #[error("the link has ended, a device was taken away or refused a packet: {0}")]
    Broken(io::Error),
}

/// What ended a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Ended {
    /// SIGINT or SIGTERM.
    Signal,
    /// Standard input was closed.
    Eof,
    /// A process whose namespace it was has ended.
    ProcessGone,
    /// The emulator stopped by itself.
    Failed,
}

/// What one direction did.
#[derive(Debug, Serialize)]
struct Counts {
    /// Packets that entered.
    sent: u64,
    /// Their IP bytes.
    sent_bytes: u64,
    /// Dropped at the queue: full, by active queue management, by a policer, or larger than the MTU.
    dropped: u64,
    /// Taken by the loss model or an outage.
    lost: u64,
    /// Packets that left, copies that the link made included.
    delivered: u64,
    /// Their IP bytes.
    delivered_bytes: u64,
    /// Copies among them.
    duplicated: u64,
    /// Still under way when the link ended.
    under_way: u64,
}

impl Counts {
    fn of(stats: &LinkStats) -> Self {
        let dropped = stats.queue_drops + stats.aqm_drops + stats.policed + stats.too_big;
        let lost = stats.lost + stats.outage_lost;
        let gone = dropped + lost + stats.delivered_packets;
        Self {
            sent: stats.offered_packets,
            sent_bytes: stats.offered_bytes,
            dropped,
            lost,
            delivered: stats.delivered_packets,
            delivered_bytes: stats.delivered_bytes,
            duplicated: stats.duplicated,
            under_way: (stats.offered_packets + stats.duplicated).saturating_sub(gone),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, dropped, lost, delivered, duplicated, under_way, .. } = self;
        write!(f, "{} sent, {lost} lost, {dropped} dropped at the queue, {delivered} delivered", count(*sent, "packet"))?;
        if *duplicated > 0 {
            write!(f, " ({duplicated} of them copies)")?;
        }
        if *under_way > 0 {
            write!(f, ", {under_way} still under way")?;
        }
        Ok(())
    }
}

/// The last words of a link.
#[derive(Debug, Serialize)]
struct Summary {
    ended: Ended,
    forward: Counts,
    backward: Counts,
    emulator: Report,
    /// Why the run does not count, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfaithful: Option<String>,
}

impl LinkArgs {
    /// Makes the link, holds it and says what it did.
    pub fn execute(&self) -> ExitCode {
        match self.hold() {
            Ok(summary) => {
                say(&if self.json { json(&summary) } else { self.text(&summary) });
                match &summary.unfaithful {
                    Some(why) => fail(&io::Error::other(why.clone()), UNFAITHFUL),
                    None => ExitCode::SUCCESS,
                }
            }
            Err(error @ LinkError::Broken(_)) => fail(&error, 1),
            Err(error) => fail(&error, IMPOSSIBLE),
        }
    }

    fn hold(&self) -> Result<Summary, LinkError> {
        let [left, right] = &*self.between else { return Err(LinkError::Ends(self.between.len())) };
        let (mut forward, mut backward) = self.link.both_directions(Traces::Read)?;
        forward.check()?;
        backward.check()?;
        let round_trip = self.bdp_rtt.map_or(forward.delay.0 + backward.delay.0, |period| period.0);
        (forward.bdp_rtt, backward.bdp_rtt) = (Some(round_trip), Some(round_trip));
        let mtu = forward.mtu.max(backward.mtu);
        let signals = signals::receive().map_err(|error| LinkError::System { step: "wait for signals", error })?;
        let (OpenEnd { device: left, process: one }, OpenEnd { device: right, process: other }) = (left.open(mtu)?, right.open(mtu)?);
        let duplex = Duplex {
            left,
            right,
            forward: LinkModel::new(&forward, self.seed)?,
            backward: LinkModel::new(&backward, self.seed.wrapping_add(1))?,
            mtu,
        };
        let start = Emulator::start(vec![duplex], Options::default());
        let emulator = start.map_err(|error| LinkError::System { step: "start the emulator", error })?;
        let ends = &self.between;
        say(&match self.json {
            true => serde_json::json!({ "ready": [ends[0].device, ends[1].device] }).to_string(),
            false => format!("ready: {} in the {}, {} in the {}", ends[0].device, ends[0].place, ends[1].device, ends[1].place),
        });
        let processes: Vec<RawFd> = [&one, &other].into_iter().flatten().map(AsRawFd::as_raw_fd).collect();
        let ended = wait(&signals, self.until_eof, &processes, &emulator).map_err(|error| LinkError::System { step: "wait", error })?;
        let stats = emulator.stats().remove(0);
        let report = emulator.finish().map_err(LinkError::Broken)?;
        let mut tolerance = Tolerance::default();
        if let Some(p99) = self.max_lateness {
            tolerance = tolerance.with_p99(p99.0);
        }
        Ok(Summary {
            ended,
            forward: Counts::of(&stats.forward),
            backward: Counts::of(&stats.backward),
            unfaithful: report.check(&tolerance).err().map(|why| why.to_string()),
            emulator: report,
        })
    }

    fn text(&self, summary: &Summary) -> String {
        let emulator = &summary.emulator;
        let (left, right) = (&self.between[0].device, &self.between[1].device);
        format!(
            "{left} to {right}: {}\n{right} to {left}: {}\nthe emulator was late by {:.0} us on average, {:.0} us at p99, {:.0} us at most",
            summary.forward, summary.backward, emulator.lateness_mean_us, emulator.lateness_p99_us, emulator.lateness_max_us
        )
    }
}

fn json(summary: &Summary) -> String {
    serde_json::to_string(summary).expect("numbers and words are JSON")
}

/// A line on standard output. The program that started the link may be gone: then nobody reads, and the link ends all the same.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Sleeps until something ends the link.
fn wait(signals: &OwnedFd, until_eof: bool, processes: &[RawFd], emulator: &Emulator) -> io::Result<Ended> {
    let watched = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // poll(2) passes over negative descriptors.
    let input = if until_eof { libc::STDIN_FILENO } else { -1 };
    let mut set: Vec<libc::pollfd> = [signals.as_raw_fd(), input].into_iter().chain(processes.iter().copied()).map(watched).collect();
    loop {
        // SAFETY: the set lives over the call.
        let ready = unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, LOOK.as_millis() as libc::c_int) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            continue;
        }
        if set[0].revents != 0 {
            return Ok(Ended::Signal);
        }
        if set[1].revents != 0 {
            let mut scraps = [0u8; 4096];
            // SAFETY: writes at most the length of a live buffer.
            let length = unsafe { libc::read(libc::STDIN_FILENO, scraps.as_mut_ptr().cast(), scraps.len()) };
            if length <= 0 {
                return Ok(Ended::Eof);
            }
        }
        if set[2..].iter().any(|process| process.revents != 0) {
            return Ok(Ended::ProcessGone);
        }
        if emulator.has_failed() {
            return Ok(Ended::Failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_direction_add_up_and_are_words() {
        let mut stats = LinkStats { offered_packets: 9, duplicated: 2, delivered_packets: 5, lost: 1, ..LinkStats::default() };
        (stats.queue_drops, stats.policed, stats.outage_lost) = (1, 1, 1);
        let all = Counts::of(&stats).to_string();
        assert_eq!(all, "9 packets sent, 2 lost, 2 dropped at the queue, 5 delivered (2 of them copies), 2 still under way");
        let one = LinkStats { offered_packets: 1, delivered_packets: 1, ..LinkStats::default() };
        assert_eq!(Counts::of(&one).to_string(), "1 packet sent, 0 lost, 0 dropped at the queue, 1 delivered");
        assert_eq!(LinkError::Ends(1).to_string(), "--between is given 1 time: a link has two ends");
    }
}
