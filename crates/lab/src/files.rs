//! Files that other programs may have put there, opened without waiting and read up to a bound.
//!
//! A folder of results may be written by other users. A FIFO in it would hold the reader, a device has no end, and a link leads anywhere.

use std::fs::{File, OpenOptions, ReadDir};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest file of a folder of results that is read, bytes.
pub const MOST_BYTES: u64 = 64 << 20;

/// What is done with a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is followed: the user named it.
    Follow,
    /// It is refused: it lay in a folder.
    Refuse,
}

/// Opens a regular file for reading.
///
/// # Errors
/// It is none, or cannot be opened. Nothing waits for the other end of a FIFO.
pub fn open(path: &Path, links: Links) -> io::Result<File> {
    regular(OpenOptions::new().read(true), path, links)
}

/// Opens a regular file in a folder for writing at its end; it is made if it is not there.
///
/// # Errors
/// It is something else, or cannot be opened. A link that somebody put there is not followed, and a FIFO is not waited for.
pub fn append(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().create(true).append(true), path, Links::Refuse)
}

/// Makes a file of a folder anew. What lies there under its name is taken away first: a link, also a hard one, may lead to a file of others.
///
/// # Errors
/// It cannot be made; or what lies there cannot be taken away, or lies there again at once.
pub fn anew(path: &Path) -> io::Result<File> {
    make_anew(path, OpenOptions::new().write(true))
}

/// The same, and nobody but this user can read it.
///
/// # Errors
/// As for [`anew`].
pub fn anew_private(path: &Path) -> io::Result<File> {
    make_anew(path, OpenOptions::new().write(true).mode(0o600))
}

fn make_anew(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    options.create_new(true).open(path)
}

/// Opens what is a regular file, and nothing else, without waiting.
fn regular(options: &mut OpenOptions, path: &Path, links: Links) -> io::Result<File> {
    let follow = if links == Links::Refuse { libc::O_NOFOLLOW } else { 0 };
    // A link that is not followed; a FIFO that nothing reads, or a socket.
    let is_no_file = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENXIO));
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | follow).open(path);
    let file = file.map_err(|e| if is_no_file(&e) { irregular() } else { e })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// The entries of a folder that the user named.
///
/// # Errors
/// There is none, in words; or it cannot be read.
pub fn entries(path: &Path) -> io::Result<ReadDir> {
    std::fs::read_dir(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(e.kind(), "no such folder"),
        io::ErrorKind::NotADirectory => not_a_folder(),
        _ => e,
    })
}

/// What stands where a folder is wanted is none.
pub fn not_a_folder() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "a file, not a folder")
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// A whole file of at most `most` bytes.
///
/// # Errors
/// As for [`open`]; or it is longer.
pub fn read(path: &Path, links: Links, most: u64) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {most} bytes"));
    let file = open(path, links)?;
    if file.metadata()?.len() > most {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // Its length may change while it is read, and files of /proc have none.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_long());
    }
    Ok(bytes)
}

/// A whole file of at most `most` bytes as text.
///
/// # Errors
/// As for [`read`]; or it is no UTF-8.
pub fn text(path: &Path, links: Links, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, links, most)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// The first line of a file in a folder, without its end; none if it is not whole yet or longer than `most` bytes.
///
/// # Errors
/// As for [`open`].
pub fn first_line(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    BufReader::new(open(path, Links::Refuse)?.take(most)).read_until(b'\n', &mut line)?;
    Ok(line.strip_suffix(b"\n").map(<[u8]>::to_vec))
}

/// The last `most` bytes of a file in a folder.
///
/// # Errors
/// As for [`open`].
pub fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open(path, Links::Refuse)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use super::*;

    /// A FIFO without another end.
    pub(crate) fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once_and_no_file_is_read_beyond_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fifo(&at("fifo"));
        std::fs::write(at("file"), "one\ntwo\n").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        for (name, links) in [("fifo", Links::Follow), ("fifo", Links::Refuse), ("link", Links::Refuse), ("zero", Links::Follow)] {
            assert!(read(&at(name), links, 100).unwrap_err().to_string().contains("not a regular file"), "{name}");
        }
        assert!(read(dir.path(), Links::Follow, 100).unwrap_err().to_string().contains("not a regular file"));
        assert_eq!(text(&at("link"), Links::Follow, 8).unwrap(), "one\ntwo\n");
        assert!(read("/proc/self/status".as_ref(), Links::Refuse, 7).unwrap_err().to_string().contains("longer than 7 bytes"));
        assert!(read(&at("file"), Links::Refuse, 7).unwrap_err().to_string().contains("longer than 7 bytes"));
        assert_eq!((tail(&at("file"), 4).unwrap(), tail(&at("file"), 100).unwrap()), (b"two\n".to_vec(), b"one\ntwo\n".to_vec()));
        assert_eq!(first_line(&at("file"), 4).unwrap(), Some(b"one".to_vec()));
        assert_eq!(first_line(&at("file"), 3).unwrap(), None);
        std::fs::write(at("file"), b"\xff").unwrap();
        assert_eq!(text(&at("file"), Links::Refuse, 8).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn nothing_is_written_through_a_link_or_into_a_fifo() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fifo(&at("fifo"));
        std::fs::write(at("file"), "before").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("new"), at("dangling")).unwrap();
        std::fs::hard_link(at("file"), at("hard")).unwrap();
        for name in ["fifo", "link", "dangling"] {
            assert!(append(&at(name)).unwrap_err().to_string().contains("not a regular file"), "{name}");
        }
        for name in ["fifo", "link", "dangling", "hard", "none"] {
            anew(&at(name)).unwrap().write_all(b"now").unwrap();
            assert!(std::fs::symlink_metadata(at(name)).unwrap().is_file(), "{name}");
            assert_eq!(std::fs::read(at(name)).unwrap(), b"now");
        }
        assert!(!at("new").exists());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"before");
        append(&at("file")).unwrap().write_all(b" and after").unwrap();
        assert_eq!(std::fs::read(at("file")).unwrap(), b"before and after");
        assert!(anew(dir.path()).is_err(), "a folder is not taken away");
    }
}
