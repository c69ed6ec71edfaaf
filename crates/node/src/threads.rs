//! The threads of a process: as many as there are cores, or as the system lets it have.

use crate::failure::Failure;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use tokio::runtime::{Builder, Runtime};

/// Threads beside those that run tasks: files are read and hashed by some of their own.
const BESIDE: usize = 6;
/// Descriptors that a process needs before it opens anything for its user.
const DESCRIPTORS: usize = 64;
/// Threads that run tasks, at least.
const LEAST: usize = 1;

/// A runtime with a thread for each core. Under a limit of threads (ulimit -u, TasksMax) it has fewer.
///
/// # Errors
/// There are too few for anything.
pub fn runtime() -> Result<Runtime, Failure> {
    // The runtime's own pipes and queues cannot fail without a panic.
    if let Err(error) = can_open(DESCRIPTORS) {
        let lacks_some = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        let advice = if lacks_some { "raise the limit (ulimit -n, LimitNOFILE= of a unit)" } else { "is there a /dev/null?" };
        return Err(Failure::System(format!("{error}: a process needs {DESCRIPTORS} descriptors for itself: {advice}")));
    }
    let wanted = thread::available_parallelism().map_or(1, NonZero::get);
    let workers = match possible(wanted + BESIDE) {
        (all, None) => all - BESIDE,
        (some, Some(_)) if some >= LEAST + BESIDE => some - BESIDE,
        (some, Some(error)) => {
            return Err(Failure::System(format!(
                "the system lets this user start {some} more threads ({error}), and {} are needed: raise the limit (ulimit -u, TasksMax= of a unit)",
                LEAST + BESIDE
            )));
        }
    };
    let built = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    built.map_err(|e| Failure::system("cannot start", e))
}

/// Opens so many files at once, and closes them again.
fn can_open(count: usize) -> std::io::Result<()> {
    (0..count).map(|_| std::fs::File::open("/dev/null")).collect::<Result<Vec<_>, _>>().map(drop)
}

/// How many threads can run at once, up to `wanted`, and the error that forbids more. The runtime would panic instead.
fn possible(wanted: usize) -> (usize, Option<std::io::Error>) {
    let mut threads = Vec::new();
    let mut error = None;
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    for _ in 0..wanted {
        let wait = Arc::clone(&wait);
        // Until the sender is dropped.
        match thread::Builder::new().stack_size(64 << 10).spawn(move || drop(wait.lock().map(|wait| wait.recv()))) {
            Ok(thread) => threads.push(thread),
            Err(e) => {
                error = Some(e);
                break;
            }
        }
    }
    drop(release);
    let count = threads.len();
    threads.into_iter().for_each(|thread| drop(thread.join()));
    (count, error)
}
