//! Runs cells on the cores of this machine, into a folder if there is one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::cell::{Build, Cell, Record};
use super::folder::{Folder, FolderError, Taken};
use super::samples::{self, Head, SampleFile};
use crate::report::Progress;
use crate::sim::side_by_side;

/// Cells to run, and where to.
#[derive(Debug, Clone, Copy)]
pub struct Sweep<'a> {
    /// The cells, each with its number in the whole list.
    pub cells: &'a [(usize, Cell)],
    /// Where results are kept; nowhere, and they are only returned.
    pub folder: Option<&'a Folder>,
    /// The program that runs.
    pub build: &'a Build,
    /// Cells at the same time.
    pub workers: usize,
    /// Keep the course of each cell beside its result ([`super::samples`]).
    pub samples: bool,
}

/// A sweep that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("{source}\n{done} of {of} cells are kept in {folder}: once that is mended, the same command goes on from there")]
pub struct SweepError {
    /// What stopped it.
    pub source: FolderError,
    /// Cells that have results.
    pub done: usize,
    /// All cells.
    pub of: usize,
    /// Where they are.
    pub folder: PathBuf,
}

/// A cell on its way.
#[derive(Debug)]
struct Item<'a> {
    place: usize,
    cell: &'a Cell,
    id: String,
    is_done: bool,
}

impl Sweep<'_> {
    /// Runs what has no result yet; the results of all, in the order of the cells.
    pub fn run(&self) -> Result<Vec<Record>, SweepError> {
        let item = |(place, cell): &(usize, Cell)| (*place, self.build.id(cell));
        let ids = self.cells.iter().map(item).collect::<Vec<_>>();
        let items: Vec<Item<'_>> = ids
            .into_iter()
            .zip(self.cells)
            .map(|((place, id), (_, cell))| Item { place, cell, is_done: self.folder.is_some_and(|folder| folder.has(&id)), id })
            .collect();
        let there = items.iter().filter(|item| item.is_done).count();
        if let (Some(folder), 1..) = (self.folder, there) {
            eprintln!("{there} of {} cells are in {} already", items.len(), folder.path().display());
        }
        let shared = Shared {
            sweep: self,
            progress: Progress::new(items.iter().filter(|item| !item.is_done).map(|item| item.cell.effort())),
            stopped: AtomicBool::new(false),
            error: Mutex::new(None),
        };
        let mut records = side_by_side(&items, self.workers, |item| shared.work(item, false));
        // What other processes had in hand: wait for it, and run what they left.
        let left: Vec<usize> = (0..items.len()).filter(|&i| records[i].is_none()).collect();
        for (&i, record) in left.iter().zip(side_by_side(&left, self.workers, |&i| shared.work(&items[i], true))) {
            records[i] = record;
        }
        let error = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (error, self.folder) {
            (Some(source), Some(folder)) => {
                let done = items.iter().filter(|item| folder.has(&item.id)).count();
                Err(SweepError { source, done, of: items.len(), folder: folder.path().to_owned() })
            }
            _ => Ok(records.into_iter().flatten().collect()),
        }
    }
}

/// Where a cell was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ran {
    /// This sweep.
    Here,
    /// Another one, now or before.
    Elsewhere,
}

/// What the workers share.
struct Shared<'a> {
    sweep: &'a Sweep<'a>,
    progress: Progress,
    stopped: AtomicBool,
    error: Mutex<Option<FolderError>>,
}

impl Shared<'_> {
    /// The record of a cell; none if another process has it in hand, or the sweep has stopped.
    fn work(&self, item: &Item<'_>, wait: bool) -> Option<Record> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let record = match self.sweep.folder {
            None => Ok(Some((self.measure(item), Ran::Here))),
            Some(folder) => self.kept(folder, item, wait),
        };
        match record {
            Ok(None) => None,
            Ok(Some((record, ran))) => {
                if !item.is_done {
                    let elsewhere = if ran == Ran::Elsewhere { " (by another run)" } else { "" };
                    self.progress.done(&format!("{}{elsewhere}", item.cell.case.name), item.cell.effort());
                }
                Some(record)
            }
            Err(error) => {
                // The others finish their cells and find out themselves whether those can be kept.
                self.stopped.store(true, Ordering::Relaxed);
                self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                None
            }
        }
    }

    fn kept(&self, folder: &Folder, item: &Item<'_>, wait: bool) -> Result<Option<(Record, Ran)>, FolderError> {
        match folder.take(&item.id, wait)? {
            Taken::Done(record) => Ok(Some((*record, Ran::Elsewhere))),
            Taken::Busy => Ok(None),
            Taken::Mine(claim) => {
                let record = self.measure(item);
                claim.keep(&record)?;
                Ok(Some((record, Ran::Here)))
            }
        }
    }

    fn measure(&self, item: &Item<'_>) -> Record {
        let watch = self.sweep.folder.filter(|_| self.sweep.samples).map(|folder| {
            let path = samples::path_of(folder.path(), &item.id);
            SampleFile::beside(&path, &Head::of(&item.cell.case.name, &item.cell.case.scenario)).watch()
        });
        let measured = item.cell.measure_watched(watch);
        Record { id: item.id.clone(), build: self.sweep.build.name().to_owned(), place: item.place, cell: item.cell.clone(), measured }
    }
}
