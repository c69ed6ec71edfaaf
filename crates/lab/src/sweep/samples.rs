//! The course of a cell as a file of JSON lines that grows while the cell runs: what a page shows live.
//!
//! `ID.samples` begins with a [`Head`], then has a [`Sample`] per line. It is no result: `merge` does not read it, and a cell without it is
//! as good as one with it. When it cannot be written any more, the run goes on, and says so once. Its writer holds a lock on it to the end.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::Quoted;
use crate::files::{self, Links};
use crate::scenario::{Limits, Scenario};
use crate::sim::{Sample, Watch};

/// End of the names of such files.
pub const ENDING: &str = "samples";

/// The first line: what runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Name of the cell, or the command of the run.
    pub name: String,
    /// Length of the run, warm-up included.
    pub seconds: f64,
    /// Seconds at the start that are not counted.
    pub warmup: f64,
    /// What the configuration allows at the end of the run, Mbit/s; null without a rate.
    pub limit_mbit: Option<f64>,
}

impl Head {
    /// Of a run.
    pub fn of(name: &str, scenario: &Scenario) -> Self {
        let limit = Limits::of(scenario).forward;
        Self {
            name: name.to_owned(),
            seconds: scenario.seconds.0.as_secs_f64(),
            warmup: scenario.warmup.0.as_secs_f64(),
            limit_mbit: limit.is_finite().then(|| crate::report::round(limit * 1e-6, 4)),
        }
    }
}

/// The command that this process is, without the flags that say where its output goes.
pub fn this_command() -> String {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let mut out = "noctule-lab".to_owned();
    while let Some(word) = words.next() {
        match &*word {
            "--samples" => drop(words.next()),
            "--json" => {}
            _ if word.starts_with("--samples=") => {}
            _ => out.push_str(&format!(" {}", Quoted(&word))),
        }
    }
    out
}

/// Where the course of a cell goes.
pub fn path_of(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.{ENDING}"))
}

/// Longest first line, bytes.
const MOST_HEAD: u64 = 64 << 10;

/// A file that is written as the run goes on.
#[derive(Debug)]
pub struct SampleFile {
    /// None: it could not be begun, and that was said. Kept as long as the run goes on, for the lock on it.
    file: Option<File>,
    /// It could not be written any more, and that was said.
    is_given_up: bool,
    path: PathBuf,
}

impl SampleFile {
    /// Begins the file that the user named: a pipe or a device, too.
    ///
    /// # Errors
    /// It cannot be written: in words, before anything has run.
    pub fn create(path: &Path, head: &Head) -> Result<Self, String> {
        let failed = |error: io::Error| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
            let why = folder.map_or_else(|| error.to_string(), |folder| format!("there is no folder {}", folder.display()));
            format!("--samples {}: cannot be written: {why}", path.display())
        };
        let file = File::create(path).map_err(failed)?;
        Self::begin(file, path, head).map_err(failed)
    }

    /// Begins a file in a folder of results; the run does not depend on it.
    pub fn beside(path: &Path, head: &Head) -> Self {
        let begun = files::anew(path).and_then(|file| Self::begin(file, path, head));
        begun.unwrap_or_else(|error| {
            complain(path, &error);
            Self { file: None, is_given_up: true, path: path.to_owned() }
        })
    }

    fn begin(mut file: File, path: &Path, head: &Head) -> io::Result<Self> {
        // Says to a page that the run goes on. Where it cannot be had, the file is as good without.
        let _ = file.try_lock();
        write_line(&mut file, head)?;
        Ok(Self { file: Some(file), is_given_up: false, path: path.to_owned() })
    }

    /// Adds a line. A reader that follows the file sees it whole: it goes out in one write.
    pub fn line(&mut self, value: &impl Serialize) {
        let Some(file) = self.file.as_mut().filter(|_| !self.is_given_up) else { return };
        if let Err(error) = write_line(file, value) {
            complain(&self.path, &error);
            self.is_given_up = true;
        }
    }

    /// As the watch of a simulated run.
    pub fn watch(mut self) -> Watch {
        Box::new(move |sample: &Sample| self.line(sample))
    }
}

fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

fn complain(path: &Path, error: &io::Error) {
    eprintln!("{} cannot be written: {error}; the run goes on without it", path.display());
}

/// What runs, from the first line of a file in a folder; none where there is no such line yet.
pub fn head(path: &Path) -> Option<Head> {
    serde_json::from_slice(&files::first_line(path, MOST_HEAD).ok()??).ok()
}

/// A course as it stands in its file in a folder; lines that are not whole yet are left out.
///
/// # Errors
/// The file cannot be read, or is none: in words, with the line.
pub fn read(path: &Path) -> Result<(Head, Vec<Sample>), String> {
    let text = files::text(path, Links::Refuse, files::MOST_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines().zip(1..);
    let wrong = |line: usize, e: serde_json::Error| format!("{}, line {line}: no sample of a run: {e}", path.display());
    let (head, _) = lines.next().ok_or_else(|| format!("{}: nothing in it yet", path.display()))?;
    let head = serde_json::from_str(head).map_err(|e| wrong(1, e))?;
    let samples: Result<Vec<Sample>, String> = lines.map(|(text, line)| serde_json::from_str(text).map_err(|e| wrong(line, e))).collect();
    Ok((head, samples?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Sample = Sample { t: 0.5, goodput_mbit: Some(1.5), queue_ms: None, rtt_ms: Some(20.0), loss: Some(0.1) };

    fn of_a_run() -> Head {
        Head { name: "loss=1%".to_owned(), seconds: 10.0, warmup: 2.0, limit_mbit: Some(9.5) }
    }

    #[test]
    fn what_is_written_is_read_and_a_half_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(dir.path(), "abc");
        SampleFile::create(&path, &of_a_run()).unwrap().line(&SAMPLE);
        assert_eq!(head(&path), Some(of_a_run()));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"t\":1.0,").unwrap();
        assert_eq!(read(&path).unwrap(), (of_a_run(), vec![SAMPLE]));
        file.write_all(b"}\n").unwrap();
        assert!(read(&path).unwrap_err().contains("line 3"));
        std::fs::write(&path, "").unwrap();
        assert!(read(&path).unwrap_err().contains("nothing in it yet"));
        assert_eq!(head(&path), None);
        SampleFile::beside(&path, &of_a_run()).line(&SAMPLE);
        assert_eq!(read(&path).unwrap(), (of_a_run(), vec![SAMPLE]));
        std::fs::remove_file(&path).unwrap();
        files::tests::fifo(&path);
        assert!(read(&path).unwrap_err().contains("not a regular file"));
        SampleFile::beside(&path, &of_a_run()).line(&SAMPLE);
        assert_eq!(read(&path).unwrap(), (of_a_run(), vec![SAMPLE]), "it takes the place of the FIFO, and waits for no reader");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        SampleFile::beside(&path, &of_a_run()).line(&SAMPLE);
        assert!(path.is_dir(), "the run does not depend on it");
    }

    #[test]
    fn a_run_that_cannot_write_its_samples_any_more_is_still_seen_to_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(dir.path(), "abc");
        std::fs::write(&path, "").unwrap();
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        // Not opened for writing: as a disk that is full.
        let mut samples = SampleFile { file: Some(file), is_given_up: false, path: path.clone() };
        samples.line(&SAMPLE);
        assert!(File::open(&path).unwrap().try_lock().is_err(), "its lock says that it runs");
        drop(samples);
        File::open(&path).unwrap().try_lock().unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_any_more_ends_nothing_and_one_that_never_could_is_told_at_once() {
        let mut full = SampleFile { file: Some(File::create("/dev/full").unwrap()), is_given_up: false, path: "/dev/full".into() };
        full.line(&SAMPLE);
        assert!(full.is_given_up);
        full.line(&SAMPLE);
        for (path, names) in [("/no/such/folder/x.samples", "no folder /no/such/folder"), ("/dev/full", "space"), ("/", "directory")] {
            let error = SampleFile::create(Path::new(path), &of_a_run()).unwrap_err();
            assert!(error.starts_with("--samples ") && error.contains(names), "{path}: {error}");
        }
    }
}
