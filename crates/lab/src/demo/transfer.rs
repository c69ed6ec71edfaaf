//! The file sent with `noctule send` to `noctule recv`, as a user would, and watched from outside.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::at_path;
use super::course::Ran;
use crate::net::chain::Chain;
use crate::net::contest::ContestError;
use crate::net::noctule;
use crate::net::process::Process;
use crate::net::timeline::Timeline;

/// What is sent, and what it must be afterwards.
pub(super) struct Files<'a> {
    pub(super) directory: &'a Path,
    pub(super) file: &'a Path,
    pub(super) hash: blake3::Hash,
    pub(super) bytes: u64,
}

const PORT: u16 = 4242;
/// How long `noctule recv` may take to open its port.
const READY: Duration = Duration::from_secs(10);
/// How long `noctule recv` may go on after the sender has ended.
const LAST_WORD: Duration = Duration::from_secs(10);

pub(super) fn noctule(chain: &Chain, files: &Files<'_>, patience: Duration) -> Result<Ran, ContestError> {
    let binary = noctule::binary()?;
    let (sender_key, receiver_key) = (files.directory.join("sender.key"), files.directory.join("receiver.key"));
    let sender_public = noctule::keygen(&binary, &sender_key)?;
    let public = noctule::keygen(&binary, &receiver_key)?;
    let into = files.directory.join("received");
    if into.exists() {
        std::fs::remove_dir_all(&into).map_err(|error| at_path(&into, error))?;
    }
    std::fs::create_dir(&into).map_err(|error| at_path(&into, error))?;
    let address = SocketAddr::new(chain.last_address(), PORT);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut command = chain.last().command(&binary);
    command
        .args(["recv", "--once", "--json", "--allow", &sender_public, "--bind", &address.to_string(), "--into"])
        .arg(&into)
        .arg("--key")
        .arg(&receiver_key);
    let mut receiver = Process::start(&mut command, {
        let seen = Arc::clone(&seen);
        move |line| seen.lock().unwrap_or_else(PoisonError::into_inner).take(line)
    })?;
    noctule::wait_for_port(chain.last(), noctule::Protocol::Udp, PORT, READY, &mut receiver)?;
    let mut command = chain.first().command(&binary);
    command.arg("send").arg(files.file).arg(address.to_string()).args(["--json", "--peer-key", &public, "--key"]).arg(&sender_key);
    let start = Instant::now();
    seen.lock().unwrap_or_else(PoisonError::into_inner).start = Some(start);
    let mut sender = Process::start(&mut command, |_| {})?;
    let sent = sender.wait(start + patience)?;
    // The sender ends when the receiver has verified everything; the receiver only has to say so.
    let received = receiver.wait(Instant::now() + LAST_WORD)?;
    for (name, status, process) in [("noctule send", sent, &sender), ("noctule recv", received, &receiver)] {
        if status.is_some_and(|status| !status.success()) {
            return Err(ContestError::Process(format!("{name} failed: {}", process.complaint())));
        }
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let complete = sent.is_some() && received.is_some();
    let copy = into.join(files.file.file_name().unwrap_or_default());
    let identical = match complete {
        true => hash_file(&copy)? == files.hash,
        // Cut off: nothing stands under the final name, so nothing is wrong.
        false => !copy.exists(),
    };
    let bytes = if complete { files.bytes } else { seen.bytes };
    let elapsed = if complete { seen.done.unwrap_or(seen.last) } else { patience };
    Ok(Ran { elapsed, bytes, complete, identical, timeline: seen.timeline })
}

/// What `noctule recv --json` said; times are ours, counted from the start of the sender.
#[derive(Default)]
struct Seen {
    start: Option<Instant>,
    timeline: Timeline,
    bytes: u64,
    last: Duration,
    done: Option<Duration>,
}

impl Seen {
    fn take(&mut self, line: &str) {
        // What comes before the sender started is no progress.
        if let Some(start) = self.start {
            self.take_at(line, start.elapsed());
        }
    }

    fn take_at(&mut self, line: &str, at: Duration) {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            return;
        };
        let kind = event["event"].as_str().unwrap_or_default();
        if !matches!(kind, "progress" | "done") {
            return;
        }
        if let Some(bytes) = event["bytes"].as_u64().filter(|bytes| *bytes > self.bytes) {
            self.timeline.record_between(self.last, at, bytes - self.bytes);
            self.bytes = bytes;
        }
        self.last = at;
        if kind == "done" {
            self.done = Some(at);
        }
    }
}

fn hash_file(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = std::fs::File::open(path).map_err(|error| at_path(path, error))?;
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_becomes_a_timeline_and_noise_is_skipped() {
        let mut seen = Seen::default();
        let ms = Duration::from_millis;
        seen.take_at(r#"{"event":"start","total":3000}"#, ms(50));
        seen.take_at(r#"{"event":"progress","bytes":1000,"elapsed_s":0.1}"#, ms(100));
        seen.take_at("not json", ms(120));
        seen.take_at(r#"{"event":"progress","bytes":2000,"elapsed_s":0.2}"#, ms(200));
        seen.take_at(r#"{"event":"progress","bytes":2000,"elapsed_s":0.3}"#, ms(300));
        seen.take_at(r#"{"event":"done","bytes":3000,"ok":true}"#, ms(400));
        assert_eq!(seen.timeline.intervals(), [1000, 1000, 0, 1000]);
        assert_eq!(seen.done, Some(ms(400)));
    }
}
