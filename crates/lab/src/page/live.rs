//! A run as it goes on, as server-sent events: how far it is, and the samples of one of its cells.
//!
//! The events come from the files that workers write, so that runs of other processes are seen as well as those that the page started.
//! Events: `progress` (a line of the list of runs, when it has changed), `course` (which cell is followed: its id and head), `samples` (those
//! that are new), `end` (no worker holds it any more; the stream ends).

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::sse::Event;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::answer::Problem;
use super::look::{LOOK, Look};
use super::routes::Page;
use super::store::Run;
use super::view::{RunState, RunSummary};
use crate::files::{self, Links};
use crate::sim::Sample;
use crate::sweep::samples::{Head, path_of};

/// Bytes of a course that are read at once.
const MOST_READ: u64 = 1 << 20;
/// Bytes without a line break after which a file is no course.
const MOST_LINE: usize = 1 << 20;

/// The events of one listener.
#[derive(Debug)]
pub struct Live(mpsc::Receiver<Event>);

impl futures_core::Stream for Live {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}

/// Follows a run: its cell `cell`, or one that runs, until it ends, the listener is gone, or the server ends.
pub fn follow(page: Arc<Page>, run: String, look: Arc<Look>, cell: Option<String>, place: OwnedSemaphorePermit) -> Live {
    // One is enough, and bounds what a slow listener holds: the next look waits until it has taken the events of the last one.
    let (out, events) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut end = page.ends.clone();
        let follower = Follower { page, run, look, wanted: cell, tail: None, said: None, seems_over: false };
        tokio::select! {
            () = follower.tell(&out, place) => {}
            () = out.closed() => {}
            // Fails only when the sender is gone, and then it is over as well.
            _ = end.wait_for(|is_over| *is_over) => {}
        }
    });
    Live(events)
}

/// What one listener has been told.
struct Follower {
    page: Arc<Page>,
    run: String,
    look: Arc<Look>,
    wanted: Option<String>,
    tail: Option<Tail>,
    said: Option<RunSummary>,
    /// At the last look nobody worked on it: perhaps between two cells.
    seems_over: bool,
}

/// A file that grows.
struct Tail {
    id: String,
    path: PathBuf,
    inode: u64,
    held: Option<File>,
    at: u64,
    rest: Vec<u8>,
    has_head: bool,
    /// Its line was too long: it is not read any more, unless it becomes shorter.
    is_given_up: bool,
}

#[derive(Serialize)]
struct Course<'a> {
    id: &'a str,
    #[serde(flatten)]
    head: Head,
}

impl Follower {
    /// Looks and tells what is new, again and again.
    ///
    /// The place goes along with each look, and is free when that has ended: one that waits for a disk goes on without its listener.
    async fn tell(self, out: &mpsc::Sender<Event>, place: OwnedSemaphorePermit) {
        let mut at = (self, place);
        loop {
            let looked = tokio::task::spawn_blocking(move || {
                let looked = at.0.look();
                (at, looked)
            });
            // Its panic would be a defect; the stream ends.
            let Ok((back, (events, is_over))) = looked.await else { return };
            at = back;
            for event in events {
                if out.send(event).await.is_err() {
                    return;
                }
            }
            if is_over {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What is new, and whether it is over.
    fn look(&mut self) -> (Vec<Event>, bool) {
        let mut events = Vec::new();
        let seen = match self.page.look(&self.look, &self.run) {
            Ok(seen) => seen,
            Err(problem) => {
                events.extend(event("end", &Gone { error: problem.text }));
                return (events, true);
            }
        };
        let (summary, run) = &*seen;
        let is_idle = !matches!(summary.state, RunState::Running | RunState::Stopping);
        let is_over = is_idle && self.seems_over;
        self.seems_over = is_idle;
        let now = self.tail.as_ref().map(|tail| &*tail.id);
        let id = match &self.wanted {
            Some(id) => run.samples.get(id),
            None => growing(run, is_idle, now),
        };
        if let Some(id) = id
            && now != Some(id)
        {
            // What the cell before wrote last is not lost: its result has the whole course.
            self.tail = Some(Tail::of(path_of(&run.path, id), id.clone()));
        }
        if let Some(tail) = &mut self.tail {
            tail.read(&mut events);
        }
        if self.said.as_ref() != Some(summary) {
            events.extend(event("progress", summary));
            self.said = Some(summary.clone());
        }
        if is_over {
            events.extend(event("end", &self.said));
        }
        (events, is_over)
    }
}

/// A course that grows: `now`, as long as that one does.
fn growing<'a>(run: &'a Run, is_idle: bool, now: Option<&str>) -> Option<&'a String> {
    let done: HashSet<&str> = run.records.iter().map(|record| &*record.id).collect();
    let grows = |id: &&String| run.claimed.contains(*id) || (!is_idle && !done.contains(id.as_str()));
    let mut growing = run.samples.iter().filter(grows);
    growing.clone().find(|id| Some(id.as_str()) == now).or_else(|| growing.next())
}

#[derive(Serialize)]
struct Gone {
    error: String,
}

impl Tail {
    fn of(path: PathBuf, id: String) -> Self {
        Self { id, path, inode: 0, held: None, at: 0, rest: Vec::new(), has_head: false, is_given_up: false }
    }

    fn read(&mut self, events: &mut Vec<Event>) {
        // A file that is not there any more has nothing new.
        let Ok(mut file) = files::open(&self.path, Links::Refuse) else { return };
        let Ok(meta) = file.metadata() else { return };
        if meta.ino() != self.inode || meta.len() < self.at {
            // The cell is run again.
            (self.inode, self.at, self.has_head, self.is_given_up) = (meta.ino(), 0, false, false);
            self.rest.clear();
        }
        let is_read = !self.is_given_up && file.seek(SeekFrom::Start(self.at)).is_ok() && self.append(&file).is_ok();
        // Open until the next look: no file that is made meanwhile can have its inode.
        self.held = Some(file);
        if !is_read {
            return;
        }
        let Some(end) = self.rest.iter().rposition(|&b| b == b'\n') else {
            if self.rest.len() > MOST_LINE {
                (self.rest, self.is_given_up) = (Vec::new(), true);
            }
            return;
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let mut samples: Vec<Sample> = Vec::new();
        for line in whole.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            if !self.has_head {
                let Ok(head) = serde_json::from_slice(line) else { return };
                self.has_head = true;
                events.extend(event("course", &Course { id: &self.id, head }));
            } else if let Ok(sample) = serde_json::from_slice(line) {
                samples.push(sample);
            }
        }
        if !samples.is_empty() {
            events.extend(event("samples", &samples));
        }
    }

    /// Takes what follows, or nothing of it where that fails: the next look reads from the same place.
    fn append(&mut self, from: impl Read) -> io::Result<()> {
        let before = self.rest.len();
        match from.take(MOST_READ).read_to_end(&mut self.rest) {
            Ok(read) => self.at += read as u64,
            Err(error) => {
                self.rest.truncate(before);
                return Err(error);
            }
        }
        Ok(())
    }
}

fn event(name: &str, value: &impl Serialize) -> Option<Event> {
    // One line: the JSON of serde has no line breaks.
    serde_json::to_string(value).ok().map(|text| Event::default().event(name).data(text))
}

/// The answer where all places for listeners are taken.
pub fn full(most: usize) -> Problem {
    Problem::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, format!("{most} listeners are served at once; close one"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use tokio::sync::{Semaphore, watch};

    use super::super::runs::Runs;
    use super::super::store::Store;
    use super::super::tables::Tables;
    use super::*;
    use crate::sweep::Build;

    /// Bytes, and then an error.
    struct Broken(&'static [u8]);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("a bad sector")),
                n => Ok(n),
            }
        }
    }

    #[test]
    fn what_was_read_before_an_error_does_not_come_twice() {
        let mut tail = Tail::of("x.samples".into(), "x".to_owned());
        tail.append(&b"{\"t\":"[..]).unwrap();
        assert!(tail.append(Broken(b"1.0}\n{")).is_err());
        assert_eq!((&*tail.rest, tail.at), (&b"{\"t\":"[..], 5));
        tail.append(&b"1.0}\n"[..]).unwrap();
        assert_eq!((&*tail.rest, tail.at), (&b"{\"t\":1.0}\n"[..], 10));
    }

    #[test]
    fn a_file_that_another_has_replaced_is_read_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("x.samples"), "not a head").unwrap();
        let mut tail = Tail::of(at("x.samples"), "x".to_owned());
        tail.read(&mut Vec::new());
        // Longer than the one before, and whole.
        std::fs::write(at("new"), "{\"name\":\"x\",\"seconds\":3.0,\"warmup\":1.0,\"limit_mbit\":null}\nx").unwrap();
        std::fs::rename(at("new"), at("x.samples")).unwrap();
        let mut events = Vec::new();
        tail.read(&mut events);
        assert_eq!((events.len(), tail.has_head, &*tail.rest), (1, true, &b"x"[..]));
    }

    #[tokio::test]
    async fn a_place_is_free_when_the_last_look_has_ended_and_not_when_its_listener_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (end, ends) = watch::channel(false);
        let store = Store::new(dir.path(), Build::named("test"));
        let page = Arc::new(Page::new(store, Runs::new("".as_ref(), 0), Tables::new(&[]).unwrap(), None, ends));
        let look = page.look_of("none");
        // A look that waits for a disk.
        let (disk, waits) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        let slow = Arc::clone(&look);
        let looking = std::thread::spawn(move || {
            slow.at(Instant::now(), || {
                begun.send(()).unwrap();
                let _ = waits.recv();
                Err(Problem::not_found("gone"))
            })
        });
        begins.recv().unwrap();
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let live = follow(page, "none".to_owned(), look, None, place);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(live);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(places.available_permits(), 0, "the look still waits");
        disk.send(()).unwrap();
        assert!(looking.join().unwrap().is_err());
        drop(places.acquire().await.unwrap());
        drop(end);
    }

    #[test]
    fn a_file_without_line_breaks_is_given_up_until_it_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.samples");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut tail = Tail::of(path.clone(), "x".to_owned());
        let mut events = Vec::new();
        for _ in 0..5 {
            file.write_all(&vec![b'x'; MOST_LINE]).unwrap();
            tail.read(&mut events);
            assert!(tail.rest.len() <= MOST_LINE);
        }
        assert!(tail.is_given_up && tail.rest.capacity() == 0);
        std::fs::write(&path, "{\"warmup\":1}\nx").unwrap();
        tail.read(&mut events);
        assert_eq!((&*tail.rest, tail.is_given_up), (&b"x"[..], false));
    }
}
