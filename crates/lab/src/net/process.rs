//! Processes that the laboratory starts: bounded in time, ended when we end, and heard out when they fail.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::contest::ContestError;

/// Lines kept for a complaint.
const LINES_KEPT: usize = 20;
/// A line longer than this is cut.
const LINE_BYTES: u64 = 16 << 20;
const POLL: Duration = Duration::from_millis(10);

/// A child process that is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    said: Arc<Mutex<VecDeque<String>>>,
    first: Arc<OnceLock<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts the command; every line of its standard output goes to `on_line` as it comes.
    pub fn start(command: &mut Command, mut on_line: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("start {}: {error}", command.get_program().display())))?;
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let first = Arc::new(OnceLock::new());
        let mut readers = Vec::new();
        if let Some(output) = child.stdout.take() {
            let (said, first) = (Arc::clone(&said), Arc::clone(&first));
            readers.push(std::thread::spawn(move || {
                lines(output, |line| {
                    note_first(&first, line);
                    on_line(line);
                    // Errors come as JSON objects on standard output where --json was given.
                    if line.contains("\"error\"") {
                        keep(&said, line);
                    }
                });
            }));
        }
        if let Some(output) = child.stderr.take() {
            let (said, first) = (Arc::clone(&said), Arc::clone(&first));
            readers.push(std::thread::spawn(move || {
                lines(output, |line| {
                    note_first(&first, line);
                    keep(&said, line);
                });
            }));
        }
        Ok(Self { child, said, first, readers })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, without waiting.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until it is `ready` for what it was started for, at most so long; `what` says that it has not become so.
    pub fn wait_until(
        &mut self,
        patience: Duration,
        what: &str,
        mut ready: impl FnMut(&Self) -> io::Result<bool>,
    ) -> Result<(), ContestError> {
        let deadline = Instant::now() + patience;
        while !ready(self)? {
            if let Some(status) = self.try_wait()? {
                self.wait(deadline)?;
                return Err(ContestError::Process(format!("a process {what}, but ended ({status}): {}", self.complaint())));
            }
            if Instant::now() >= deadline {
                return Err(ContestError::Process(format!("a process {what} within {patience:?}: {}", self.complaint())));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits for the first line with words on either output; none if it ends without one, or says nothing for so long.
    pub fn first_line(&mut self, patience: Duration) -> io::Result<Option<String>> {
        let deadline = Instant::now() + patience;
        while self.first.get().is_none() && Instant::now() < deadline {
            if self.try_wait()?.is_some() {
                // Its last words are read.
                self.wait(deadline)?;
                break;
            }
            std::thread::sleep(POLL);
        }
        Ok(self.first.get().cloned())
    }

    /// Waits for its end and for its last line; kills it at the deadline, which gives `None`.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= deadline {
                self.child.kill()?;
                self.child.wait()?;
                break None;
            }
            std::thread::sleep(POLL);
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(status)
    }

    /// What it said on standard error and in error events.
    pub fn complaint(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() { "it said nothing".to_owned() } else { said.iter().cloned().collect::<Vec<_>>().join("; ") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line without words is none.
fn note_first(first: &OnceLock<String>, line: &str) {
    if !line.trim().is_empty() {
        first.get_or_init(|| line.trim().to_owned());
    }
}

fn keep(said: &Mutex<VecDeque<String>>, line: &str) {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() == LINES_KEPT {
        said.pop_front();
    }
    said.push_back(line.chars().take(2000).collect());
}

fn lines(output: impl Read, mut on_line: impl FnMut(&str)) {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    // A reading error means the same as the end: the process is gone.
    while let Ok(1..) = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
        on_line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn lines_arrive_and_the_status_is_known() {
        let (heard, lines) = mpsc::channel();
        let mut process =
            Process::start(&mut shell("echo one; echo two; exit 3"), move |line| heard.send(line.to_owned()).unwrap()).unwrap();
        assert_eq!(process.wait(soon()).unwrap().and_then(|status| status.code()), Some(3));
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(process.complaint(), "it said nothing");
    }

    #[test]
    fn complaints_are_what_it_said_on_standard_error_and_in_error_events() {
        let script = r#"echo '{"event":"error","message":"no"}'; echo bad >&2; exit 1"#;
        let mut process = Process::start(&mut shell(script), |_| {}).unwrap();
        process.wait(soon()).unwrap();
        let complaint = process.complaint();
        assert!(complaint.contains("bad") && complaint.contains("no"), "{complaint}");
    }

    #[test]
    fn process_that_does_not_end_is_killed_at_its_deadline() {
        let mut process = Process::start(&mut shell("exec sleep 1000"), |_| {}).unwrap();
        assert!(process.wait(Instant::now()).unwrap().is_none());
        assert!(process.try_wait().unwrap().is_some());
    }

    #[test]
    fn program_that_is_not_there_is_named() {
        let error = Process::start(&mut Command::new("/nowhere/noctule"), |_| {}).unwrap_err();
        assert!(error.to_string().contains("/nowhere/noctule"));
    }
}
