//! A run as it goes on, as server-sent events: how far it is, and the samples of one of its cells.
//!
//! The events come from the files that workers write, so that runs of other processes are seen as well as those that the page started.
//! Events: `progress` (a line of the list of runs, when it has changed), `course` (which cell is followed: its id and head), `samples` (those
//! that are new), `end` (nobody works on it any more; the stream ends).

use std::convert::Infallible;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::sse::Event;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::answer::Problem;
use super::look::{LOOK, Look};
use super::routes::Page;
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
pub struct Live {
    events: mpsc::Receiver<Event>,
    _place: OwnedSemaphorePermit,
}

impl futures_core::Stream for Live {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context).map(|event| event.map(Ok))
    }
}

/// Follows a run: its cell `cell`, or one that runs, until nobody works on it.
pub fn follow(page: Arc<Page>, run: String, cell: Option<String>, place: OwnedSemaphorePermit) -> Live {
    let (out, events) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut end = page.ends.clone();
        let look = page.look_of(&run);
        let mut follower = Follower { page, run, look, wanted: cell, tail: None, said: None, seems_over: false };
        loop {
            let looked = tokio::task::spawn_blocking(move || {
                let looked = follower.look();
                (follower, looked)
            });
            let Ok((back, (events, is_over))) = looked.await else { return };
            follower = back;
            for event in events {
                if out.send(event).await.is_err() {
                    return;
                }
            }
            if is_over || is_ending(&mut end) {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = out.closed() => return,
                _ = end.changed() => return,
            }
        }
    });
    Live { events, _place: place }
}

fn is_ending(end: &mut watch::Receiver<bool>) -> bool {
    *end.borrow_and_update()
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
        let id = self.wanted.clone().filter(|id| run.samples.contains(id)).or_else(|| {
            let grows = |id: &&String| run.claimed.contains(*id) || (!is_idle && !run.records.iter().any(|record| record.id == **id));
            let mut growing = run.samples.iter().filter(grows).filter(|_| self.wanted.is_none());
            let now = self.tail.as_ref().map(|tail| &tail.id);
            growing.clone().find(|id| Some(*id) == now).or_else(|| growing.next()).cloned()
        });
        if let Some(id) = id
            && self.tail.as_ref().is_none_or(|tail| tail.id != id)
        {
            // What the cell before wrote last is not lost to anybody: its result has the whole course.
            self.tail = Some(Tail::of(path_of(&run.path, &id), id));
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

#[derive(Serialize)]
struct Gone {
    error: String,
}

impl Tail {
    fn of(path: PathBuf, id: String) -> Self {
        Self { id, path, at: 0, rest: Vec::new(), has_head: false, is_given_up: false }
    }

    fn read(&mut self, events: &mut Vec<Event>) {
        // A file that is not there any more has nothing new.
        let Ok(mut file) = files::open(&self.path, Links::Refuse) else { return };
        if file.metadata().is_ok_and(|meta| meta.len() < self.at) {
            // The cell is run again.
            (self.at, self.has_head, self.is_given_up) = (0, false, false);
            self.rest.clear();
        }
        if self.is_given_up || file.seek(SeekFrom::Start(self.at)).is_err() {
            return;
        }
        let Ok(read) = file.take(MOST_READ).read_to_end(&mut self.rest) else { return };
        self.at += read as u64;
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

    use super::*;

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
