//! Runs that the page starts: this program again, as a child that works on a folder as `noctule-lab cell` does anywhere.
//!
//! A child and not a thread, because it can be ended at any moment without harm, because a run that takes all memory takes not the page with
//! it, and because what it leaves is the same folder of results as that of a sweep from a terminal.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::answer::Problem;
use super::request::{Job, Request};
use super::store::{LIST, LOG, NET, REPORT, REQUEST};
use super::view::Ours;
use crate::files;
use crate::sweep::{folder, list};

/// How long a child may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a child does in the folder of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// The cells of its list that have no result.
    Listed,
    /// One run on namespaces, by the words after `noctule-lab net`.
    Net(Vec<String>),
}

/// Children that work.
#[derive(Debug)]
pub struct Runs {
    program: PathBuf,
    most: usize,
    children: Mutex<Children>,
}

#[derive(Debug, Default)]
struct Children {
    by_name: BTreeMap<String, Worker>,
    /// The server ends: what began after this would be told by nobody to end.
    closed: bool,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// When it was asked to end.
    asked: Option<Instant>,
}

impl Runs {
    /// At most `most` at the same time; `program` is what is started.
    pub fn new(program: &Path, most: usize) -> Self {
        Self { program: program.to_owned(), most, children: Mutex::default() }
    }

    /// How many may run at the same time.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The children, those that have ended forgotten.
    fn children(&self) -> MutexGuard<'_, Children> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose state cannot be known is kept: its place is not given away.
        children.by_name.retain(|_, worker| !matches!(worker.child.try_wait(), Ok(Some(_))));
        children
    }

    /// Names of the runs that it works on.
    pub fn names(&self) -> Vec<String> {
        self.children().by_name.keys().cloned().collect()
    }

    /// What this server does on a run.
    pub fn ours(&self, name: &str) -> Ours {
        match self.children().by_name.get(name) {
            None => Ours::No,
            Some(Worker { asked: None, .. }) => Ours::Works,
            Some(_) => Ours::Stopping,
        }
    }

    /// Starts a run in a new folder below `root`.
    ///
    /// # Errors
    /// Too many run, the name is taken, the folder cannot be written, the program cannot be started, or the server ends. Nothing is left behind then.
    pub fn start(&self, root: &Path, request: &Request, job: &Job) -> Result<(), Problem> {
        // Held until the child is there, so that two requests at once do not both find the last place free.
        let mut children = self.children();
        let taken = || Problem::new(StatusCode::CONFLICT, format!("there is a run {:?} already", request.name));
        self.refuse_more(&children)?;
        // Its folder may have been removed under it.
        if children.by_name.contains_key(&request.name) {
            return Err(taken());
        }
        self.refuse_full(&children)?;
        let path = root.join(&request.name);
        std::fs::create_dir(&path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => cannot(&path, &e),
        })?;
        match prepare(&path, request, job).and_then(|work| self.spawn(&path, request.workers, &work)) {
            Ok(child) => {
                children.by_name.insert(request.name.clone(), Worker { child, asked: None });
                Ok(())
            }
            Err(problem) => {
                // Made a moment ago, and nothing has run in it.
                let _ = std::fs::remove_dir_all(&path);
                Err(problem)
            }
        }
    }

    /// Goes on with a run that nobody works on: cells without a result are run, a run on namespaces begins anew.
    ///
    /// # Errors
    /// Too many run, a child works on it already, its files cannot be written, the program cannot be started, or the server ends.
    pub fn resume(&self, name: &str, path: &Path, workers: Option<u16>, work: &Work) -> Result<(), Problem> {
        let mut children = self.children();
        self.refuse_more(&children)?;
        if children.by_name.contains_key(name) {
            return Err(Problem::new(StatusCode::CONFLICT, format!("the run {name:?} is under way")));
        }
        self.refuse_full(&children)?;
        let child = self.spawn(path, workers, work)?;
        children.by_name.insert(name.to_owned(), Worker { child, asked: None });
        Ok(())
    }

    /// Refuses all runs of a server that starts none, or that ends.
    fn refuse_more(&self, children: &Children) -> Result<(), Problem> {
        if self.most == 0 {
            return Err(Problem::new(StatusCode::FORBIDDEN, "this server starts no runs (--runs 0)"));
        }
        if children.closed {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this server ends; start the run at the next one"));
        }
        Ok(())
    }

    /// Refuses a run where all places are taken.
    fn refuse_full(&self, children: &Children) -> Result<(), Problem> {
        let busy = children.by_name.len();
        if busy < self.most {
            return Ok(());
        }
        let names: Vec<&str> = children.by_name.keys().map(String::as_str).collect();
        let text = format!("{busy} of {} runs are under way: {}; wait, or end one", self.most, names.join(", "));
        Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, text))
    }

    fn spawn(&self, path: &Path, workers: Option<u16>, work: &Work) -> Result<Child, Problem> {
        let log = path.join(LOG);
        let failed = |e: io::Error| cannot(&log, &e);
        let said = files::anew(&log).map_err(failed)?;
        let mut command = Command::new(&self.program);
        match work {
            Work::Listed => {
                command.arg("cell").arg("--of").arg(path.join(LIST)).args(["--shard", "1/1", "--samples", "--results"]).arg(path);
                if let Some(workers) = workers {
                    command.arg("--workers").arg(workers.to_string());
                }
                command.stdout(Stdio::null());
            }
            Work::Net(words) => {
                let report = files::anew(&path.join(REPORT)).map_err(failed)?;
                // The lock goes along with the open file: the child holds it before its first sample, and until it has printed its report. It
                // tells the next server that the run goes on; this one knows its children. Where it cannot be had, the run is as good without.
                let _ = report.try_lock();
                command.arg("net").args(words).arg("--json").arg("--samples").arg(crate::sweep::samples::path_of(path, NET));
                command.stdout(report);
            }
        }
        command.stdin(Stdio::null()).stderr(said);
        command
            .spawn()
            .map_err(|e| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{} cannot be started: {e}", self.program.display())))
    }

    /// Asks the child of a run to end; what it has finished stays. [`Runs::tend`] kills it if it does not.
    ///
    /// # Errors
    /// This server does not work on that run.
    pub fn cancel(&self, name: &str) -> Result<(), Problem> {
        let mut children = self.children();
        let not_ours = || {
            let text = format!("this server does not work on {name:?}: a run that was started elsewhere is ended there");
            Problem::new(StatusCode::CONFLICT, text)
        };
        let worker = children.by_name.get_mut(name).ok_or_else(not_ours)?;
        if worker.asked.is_none() {
            ask_to_end(&worker.child);
            worker.asked = Some(Instant::now());
        }
        Ok(())
    }

    /// Forgets children that have ended, and kills those that were asked to end and did not; called now and then.
    pub fn tend(&self) {
        for worker in self.children().by_name.values_mut() {
            if worker.asked.is_some_and(|asked| asked.elapsed() > PATIENCE) {
                // It may have ended since.
                let _ = worker.child.kill();
            }
        }
    }

    /// Ends all children and waits for them, and starts no more: at the end of the server.
    pub fn end(&self) {
        let mut children = self.children();
        children.closed = true;
        for worker in children.by_name.values_mut().filter(|worker| worker.asked.is_none()) {
            ask_to_end(&worker.child);
            worker.asked = Some(Instant::now());
        }
        drop(children);
        while !self.children().by_name.is_empty() {
            self.tend();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Writes down what was asked for, before anything runs.
///
/// # Errors
/// The folder cannot be written.
pub fn prepare(path: &Path, request: &Request, job: &Job) -> Result<Work, Problem> {
    let internal = |e: &dyn std::fmt::Display| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
    let write = |name: &str, bytes: &[u8]| {
        folder::replace(&path.join(name), bytes).map_err(|e| Problem::new(StatusCode::INSUFFICIENT_STORAGE, e.to_string()))
    };
    write(REQUEST, &serde_json::to_vec(request).map_err(|e| internal(&e))?)?;
    match job {
        Job::Cells(cells) => {
            write(LIST, list::to_json(cells).map_err(|e| internal(&e))?.as_bytes())?;
            Ok(Work::Listed)
        }
        Job::Net(words) => Ok(Work::Net(words.clone())),
    }
}

/// SIGTERM: workers stop between two cells' results, and namespaces are taken down.
fn ask_to_end(child: &Child) {
    if let Ok(id) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain call. The number is still that of our child: nobody has waited for it, so it is not given to another process.
        unsafe {
            libc::kill(id, libc::SIGTERM);
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Problem {
    let status = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        io::ErrorKind::NotFound => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status, format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_asked_for_while_the_server_ends_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::new("/bin/false".as_ref(), 2);
        let request = Request::parse(br#"{"name":"late","what":{"kind":"grid","flags":{"rate":"1mbit"}}}"#).unwrap();
        let job = request.job(None).unwrap();
        runs.start(dir.path(), &request, &job).unwrap();
        runs.end();
        assert_eq!(runs.names(), Vec::<String>::new());
        let late = Request { name: "later".to_owned(), ..request };
        assert_eq!(runs.start(dir.path(), &late, &job).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(!dir.path().join("later").exists());
    }
}
