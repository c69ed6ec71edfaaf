//! Opening below a directory descriptor: no name, and no symbolic link in it, leads out, whatever happens to the directory meanwhile.

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A directory that sources lie below.
#[derive(Debug)]
pub struct Root {
    dir: Dir,
    /// How messages name it.
    shown: PathBuf,
}

/// An entry of a directory, as it is listed.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is; not followed if it is a link.
    pub stat: Stat,
    /// Where the link leads, if it is one.
    pub link: Option<Vec<u8>>,
}

impl Root {
    /// The directory of this name.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { dir: Dir::open_ambient_dir(path, ambient_authority())?, shown: path.to_owned() })
    }

    /// A directory below, which links that stay below may lead to.
    pub fn below(&self, path: &Path) -> io::Result<Self> {
        Ok(Self { dir: self.dir.open_dir(path)?, shown: self.shown.join(path) })
    }

    /// What messages call something below.
    pub fn shown(&self, path: &Path) -> PathBuf {
        if path == Path::new(".") { self.shown.clone() } else { self.shown.join(path) }
    }

    /// The relative name, free of links, of what this name leads to.
    ///
    /// # Errors
    /// There is nothing, or it lies outside.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.dir.canonicalize(path)
    }

    /// Opens a relative name, no part of which is a link, and waits for nothing.
    pub fn open_plain(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        // Opening a FIFO would wait; with O_PATH nothing is opened, and openat2 takes no flag that would not matter.
        let patience = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
        let flags = flags | patience | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH) {
            // Linux before 5.6, or a sandbox that does not know it.
            Err(Errno::NOSYS | Errno::PERM) => self.open_by_steps(path, flags),
            result => Ok(result?.into()),
        }
    }

    fn open_by_steps(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = rustix::fs::openat(&self.dir, ".", step, Mode::empty())?;
        let mut parts = path.components().filter(|part| *part != Component::CurDir).peekable();
        while let Some(part) = parts.next() {
            match part {
                Component::Normal(name) if parts.peek().is_some() => dir = rustix::fs::openat(&dir, name, step, Mode::empty())?,
                Component::Normal(name) => return Ok(rustix::fs::openat(&dir, name, flags, Mode::empty())?.into()),
                _ => return Err(Errno::XDEV),
            }
        }
        Ok(rustix::fs::openat(&dir, ".", flags, Mode::empty())?.into())
    }

    /// What a relative name is, and the directory that it lies in. A link is one only if it is the last part.
    pub fn look(&self, path: &Path) -> io::Result<(File, Listed)> {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir = self.open_plain(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let found = listed(&dir, name.as_bytes())?;
        Ok((dir, found))
    }

    /// Opens a directory for listing.
    pub fn open_dir(&self, path: &Path) -> io::Result<File> {
        Ok(self.open_plain(path, OFlags::RDONLY | OFlags::DIRECTORY)?)
    }
}

/// A name, and what is wrong with it.
pub type Failing = (Vec<u8>, io::Error);

/// What a directory holds, in the order of names; entries that cannot be looked at have their reason.
pub fn list(dir: &File) -> io::Result<Vec<Result<Listed, Failing>>> {
    let mut all = Vec::new();
    for found in rustix::fs::Dir::read_from(dir)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name != b"." && name != b".." {
            match listed(dir, name) {
                // Gone between listing and looking: as if it had never been there.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                result => all.push(result.map_err(|e| (name.to_vec(), e))),
            }
        }
    }
    let name = |found: &Result<Listed, Failing>| match found {
        Ok(found) => found.name.clone(),
        Err((name, _)) => name.clone(),
    };
    all.sort_by_cached_key(name);
    Ok(all)
}

fn listed(dir: &File, name: &[u8]) -> io::Result<Listed> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let link = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Some(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes()),
        _ => None,
    };
    Ok(Listed { name: name.to_vec(), stat, link })
}

/// A name for calls that take no descriptor of a directory: what `name` is in `dir`, not followed.
pub fn by_descriptor(dir: &File, name: &[u8]) -> PathBuf {
    Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn neither_names_nor_links_lead_out_and_both_paths_to_a_file_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let served = dir.path().join("served");
        std::fs::create_dir_all(served.join("a/b")).unwrap();
        std::fs::write(served.join("a/b/f"), b"inside").unwrap();
        std::fs::write(dir.path().join("secret"), b"s").unwrap();
        symlink("../secret", served.join("out")).unwrap();
        symlink(dir.path(), served.join("up")).unwrap();
        symlink("a/b", served.join("in")).unwrap();
        let root = Root::open(&served).unwrap();
        assert_eq!(root.resolve(Path::new("in/f")).unwrap(), Path::new("a/b/f"));
        for name in ["out", "up/secret", "../secret", "a/../../secret", "/etc/passwd"] {
            assert!(root.resolve(Path::new(name)).is_err(), "{name}");
            let flags = OFlags::RDONLY;
            assert!(root.open_plain(Path::new(name), flags).is_err(), "{name}");
            assert!(root.open_by_steps(Path::new(name), flags | OFlags::NOFOLLOW).is_err(), "{name}");
        }
        // A name with a link in it is not plain.
        assert!(root.open_plain(Path::new("in/f"), OFlags::RDONLY).is_err());
        for file in [root.open_plain(Path::new("a/b/f"), OFlags::RDONLY), root.open_by_steps(Path::new("a/b/f"), OFlags::RDONLY)] {
            assert_eq!(io::read_to_string(file.unwrap()).unwrap(), "inside");
        }
        let names = |path: &str| -> Vec<Vec<u8>> {
            list(&root.open_dir(Path::new(path)).unwrap()).unwrap().into_iter().map(|found| found.unwrap().name).collect()
        };
        assert_eq!(names("."), [b"a".to_vec(), b"in".to_vec(), b"out".to_vec(), b"up".to_vec()]);
        assert_eq!(names("a/b"), [b"f".to_vec()]);
        assert_eq!(root.look(Path::new("out")).unwrap().1.link.unwrap(), b"../secret");
    }
}
