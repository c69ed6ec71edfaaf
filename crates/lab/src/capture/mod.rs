//! Captures of a run: what crosses the two ends of each link as pcap, what each end of noctule traces as qlog, both bounded in size.
//!
//! The same files come of the simulator, with virtual times ([`simulated`]), and of namespaces ([`crate::net`]).

pub mod bounded;
pub mod pcap;
pub mod qlog;
pub mod simulated;

use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;

pub use bounded::Kept;

use crate::files;

/// What of a run is captured.
#[derive(Debug, Clone, Args)]
pub struct CaptureArgs {
    /// Keep what crosses the two ends of each link (pcap), and what noctule traces (qlog), in files of this folder.
    #[arg(long, value_name = "DIR", group = "captured")]
    pub capture: Option<PathBuf>,
    /// Largest file of a capture, e.g. 64MiB. What comes after it is counted, and not kept.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", requires = "captured", value_parser = crate::link::parse_bytes)]
    pub capture_limit: u64,
}

impl CaptureArgs {
    /// The folder, if one was asked for; it is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or is none.
    pub fn folder(&self) -> io::Result<Option<Folder>> {
        self.capture.as_deref().map(|path| Folder::open(path, self.capture_limit)).transpose()
    }
}

/// Where the files of a capture are made.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    limit: u64,
}

impl Folder {
    /// A folder, which nobody else can read if it is made here.
    ///
    /// # Errors
    /// It cannot be made, or is none.
    pub fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("--capture {}: {error}", path.display()));
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                files::entries(path).map_err(named)?;
            }
            Err(error) => return Err(named(error)),
        }
        Ok(Self { path: path.to_owned(), limit })
    }

    /// Largest file.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Makes a file of it anew, for this user only. A link or a FIFO of that name is taken away, and neither followed nor opened.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self, name: &str) -> io::Result<BufWriter<File>> {
        let file = files::anew_private(&self.path.join(name));
        Ok(BufWriter::with_capacity(1 << 18, file.map_err(|error| self.failed(name, &error))?))
    }

    /// A failure, with the name of the file.
    pub fn failed(&self, name: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.join(name).display()))
    }

    /// Says where the files are, what they hold, and what they do not.
    pub fn tell(&self, kept: &[Kept]) {
        for Kept { file, records, bytes, beyond, unseen } in kept {
            eprintln!("{}: {records} records, {bytes} bytes", self.path.join(file).display());
            if *beyond > 0 {
                eprintln!("  it has reached its bound (--capture-limit): {beyond} later ones are not in it");
            }
            if *unseen > 0 {
                eprintln!("  {unseen} packets are missing: the kernel could not hand them over in time");
            }
        }
    }
}

/// The two ends of a link, in the order of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nearer to the first host.
    Left,
    /// Nearer to the last host.
    Right,
}

/// Name of the capture at an end of a link, which are counted from one as `--hop` does.
pub fn link_file(link: usize, end: End) -> String {
    let end = match end {
        End::Left => "left",
        End::Right => "right",
    };
    format!("link{}-{end}.pcap", link + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_are_for_this_user_only_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        let path = dir.path().join("capture");
        let folder = Folder::open(&path, 1000).unwrap();
        assert_eq!(mode(&path), 0o700);
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "before").unwrap();
        symlink(&victim, path.join("link1-left.pcap")).unwrap();
        crate::files::tests::fifo(&path.join("link1-right.pcap"));
        for end in [End::Left, End::Right] {
            drop(folder.create(&link_file(0, end)).unwrap());
            assert_eq!(mode(&path.join(link_file(0, end))), 0o600);
            assert!(std::fs::symlink_metadata(path.join(link_file(0, end))).unwrap().is_file());
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"before");
        assert!(Folder::open(&victim, 1000).unwrap_err().to_string().contains("not a folder"));
        assert!(Folder::open(&dir.path().join("a/b"), 1000).unwrap_err().to_string().contains("a/b"));
    }
}
