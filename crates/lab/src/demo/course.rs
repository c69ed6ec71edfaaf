//! The contenders in turn, each over a fresh link with the same seed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use super::outcome::Outcome;
use super::transfer::{self, Files};
use super::{Job, at_path, say};
use crate::net::chain::Chain;
use crate::net::command::prepare;
use crate::net::contest::{Conditions, ContestError, Course};
use crate::net::emulator::{Options, Tolerance};
use crate::net::pattern;
use crate::net::scratch::Scratch;
use crate::net::tcp::{self, Congestion, Payload, Transfer};
use crate::net::timeline::Timeline;

/// A run that the machine spoilt is made once more.
const ATTEMPTS: u32 = 2;
/// noctule is given up after this many times the time that the limit allows.
const PATIENCE: f64 = 12.0;

/// What a contender did, before the link was stopped.
pub(super) struct Ran {
    pub(super) elapsed: Duration,
    pub(super) bytes: u64,
    pub(super) complete: bool,
    pub(super) identical: bool,
    pub(super) timeline: Timeline,
}

pub(super) fn run(job: &Job) -> Result<Vec<Outcome>, ContestError> {
    // Namespaces first: where they are not permitted, no file need be written.
    prepare()?;
    drop(build(job)?);
    let directory = Scratch::new("noctule-demo")?;
    let file = directory.path().join("file.bin");
    let mut to = File::create(&file).map_err(|error| at_path(&file, error))?;
    let hash = pattern::write_unique(job.seed, job.bytes, &mut to).map_err(|error| at_path(&file, error))?;
    drop(to);
    let files = Files { directory: directory.path(), file: &file, hash, bytes: job.bytes };
    let mut outcomes = Vec::new();
    let patience = Duration::from_secs_f64((PATIENCE * job.bytes as f64 * 8e-6 / job.limit_mbit).max(30.0));
    say("noctule send, noctule recv ...");
    outcomes.push(attempt("noctule", job, |chain| transfer::noctule(chain, &files, patience))?);
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        let name = format!("TCP {}", congestion.name().to_uppercase());
        if !congestion.is_available() {
            say(&format!("{name}: not in this kernel"));
            continue;
        }
        say(&format!("{name}, at most {:.0} s ...", job.tcp_limit.as_secs_f64()));
        outcomes.push(attempt(&name, job, |chain| over_tcp(chain, &files, congestion, job.tcp_limit))?);
    }
    Ok(outcomes)
}

fn build(job: &Job) -> Result<Chain, ContestError> {
    Ok(Chain::build(&job.scenario.hops, job.scenario.ip, job.backend, job.seed)?)
}

fn attempt(name: &str, job: &Job, contend: impl Fn(&Chain) -> Result<Ran, ContestError>) -> Result<Outcome, ContestError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match once(name, job, &contend) {
            Err(error @ ContestError::Unfaithful(_)) => {
                say(&format!("{name}: {error}"));
                last = Some(error);
            }
            other => return other,
        }
    }
    Err(last.expect("every attempt that does not return leaves its error"))
}

fn once(name: &str, job: &Job, contend: &impl Fn(&Chain) -> Result<Ran, ContestError>) -> Result<Outcome, ContestError> {
    let chain = build(job)?;
    let mut conditions = Conditions::of(chain.backend(), chain.privilege());
    let link = &job.scenario.hops[0].forward;
    let bdp = link.rate.map_or(0, |rate| rate.bytes_in(job.scenario.base_rtt()));
    let buffers = tcp::buffer_bytes(bdp);
    for host in chain.hosts() {
        tcp::tune(host, buffers)?;
    }
    conditions.tcp_buffer_bytes = name.starts_with("TCP").then_some(buffers);
    let course = Course::start(chain, Options::default())?;
    let ran = contend(course.chain())?;
    let account = course.account(&job.scenario)?;
    conditions.emulator = course.finish(&Tolerance::default())?;
    Ok(Outcome {
        name: name.to_owned(),
        elapsed: ran.elapsed,
        bytes: ran.bytes,
        complete: ran.complete,
        identical: ran.identical,
        timeline: ran.timeline,
        wire_per_byte: (ran.bytes > 0).then(|| account.sent[0] as f64 / ran.bytes as f64),
        conditions: Some(conditions),
    })
}

fn over_tcp(chain: &Chain, files: &Files<'_>, congestion: Congestion, limit: Duration) -> Result<Ran, ContestError> {
    let transfer = Transfer {
        congestion,
        to: chain.last_address(),
        payload: Payload::File(files.file.to_owned()),
        limit,
        proxies: Vec::new(),
        relayed: None,
    };
    let received = tcp::run(chain.first(), chain.last(), &transfer)?;
    let complete = received.complete && received.bytes == files.bytes;
    let expected = if complete { files.hash } else { hash_of_beginning(files.file, received.bytes)? };
    Ok(Ran {
        elapsed: if complete { received.elapsed } else { limit },
        bytes: received.bytes,
        complete,
        identical: received.hash == expected,
        timeline: received.timeline,
    })
}

fn hash_of_beginning(path: &Path, bytes: u64) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(|error| at_path(path, error))?;
    io::copy(&mut file.take(bytes), &mut hasher)?;
    Ok(hasher.finalize())
}
