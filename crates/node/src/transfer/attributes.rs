//! Extended attributes and POSIX ACLs: read beside an entry, carried with the manifest, set before a file gets its name.
//!
//! An ACL is the attribute `system.posix_acl_access` or `system.posix_acl_default`, as the kernel has it: users and groups by their numbers.

use super::beneath::by_descriptor;
use clap::ValueEnum;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use xattr::FileExt;

/// Bytes of a name, at most: XATTR_NAME_MAX.
const MAX_NAME: usize = 255;
/// Bytes of a value, at most: XATTR_SIZE_MAX.
const MAX_VALUE: usize = 64 * 1024;
/// Bytes of all names and values of an entry, at most: file systems have room for far less.
pub const MAX_BYTES: usize = 128 * 1024;
/// Attributes of an entry, at most.
pub const MAX_COUNT: usize = 256;

/// Which attributes travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kept {
    /// None.
    #[default]
    #[value(skip)]
    None,
    /// `user.*`, and ACLs.
    User,
    /// `security.*`, too; only root can read and set them.
    Security,
}

impl Kept {
    /// Whether an attribute of this name is among them.
    fn takes(self, name: &[u8]) -> bool {
        match name {
            name if name.starts_with(b"user.") => self >= Self::User,
            b"system.posix_acl_access" | b"system.posix_acl_default" => self >= Self::User,
            name if name.starts_with(b"security.") => self >= Self::Security,
            _ => false,
        }
    }
}

/// Of one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Attributes {
    /// Bytes of names and values.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// They keep the limits, and no name comes twice or says something that names do not.
    pub fn is_sound(&self) -> bool {
        let is_name = |name: &[u8]| (1..=MAX_NAME).contains(&name.len()) && !name.contains(&0);
        let mut names: Vec<&[u8]> = self.0.iter().map(|(name, _)| &name[..]).collect();
        names.sort_unstable();
        self.0.len() <= MAX_COUNT
            && self.bytes() <= MAX_BYTES
            && self.0.iter().all(|(name, value)| is_name(name) && value.len() <= MAX_VALUE)
            && names.windows(2).all(|w| w[0] != w[1])
    }
}

/// Attributes of an entry of an open directory that travel, and whether it has others that a user would miss. Of a link nothing is read.
pub fn read(dir: &File, name: &[u8], kept: Kept) -> (Attributes, bool) {
    let path = by_descriptor(dir, name);
    // A file system without attributes, or an entry that is not ours to read, has none.
    let Ok(names) = xattr::list(&path) else { return Default::default() };
    let (mut all, mut is_less) = (Attributes::default(), false);
    for name in names {
        let bytes = name.as_bytes();
        if !kept.takes(bytes) {
            // Labels of a security module and the like are the host's own.
            is_less |= Kept::User.takes(bytes);
            continue;
        }
        match xattr::get(&path, &name) {
            Ok(Some(value)) => all.0.push((bytes.to_vec(), value)),
            Ok(None) => {}
            Err(_) => is_less = true,
        }
        if !all.is_sound() {
            all.0.pop();
            is_less = true;
        }
    }
    (all, is_less)
}

/// What became of attributes at the target.
#[derive(Debug, Default)]
pub struct Setting {
    /// Entries of which some were not set.
    dropped: AtomicU64,
}

impl Setting {
    /// Sets attributes of an open file as far as `kept` allows.
    pub fn set(&self, file: &File, attributes: &Attributes, kept: Kept) {
        let set = |(name, value): &(Vec<u8>, Vec<u8>)| -> io::Result<()> {
            match kept.takes(name) {
                true => file.set_xattr(OsStr::from_bytes(name), value),
                false => Err(io::ErrorKind::PermissionDenied.into()),
            }
        };
        // All of them are tried.
        let failed = attributes.0.iter().filter(|one| set(one).is_err()).count();
        self.dropped.fetch_add(u64::from(failed > 0), Relaxed);
    }

    /// Tells of the entries that lack some, once.
    pub fn tell(&self, kept: Kept) {
        let dropped = self.dropped.swap(0, Relaxed);
        let why = match kept {
            Kept::None => "this side was started without --xattrs",
            _ => "the file system or the system's permissions do not take all of them",
        };
        if dropped > 0 {
            tell!("noctule: warning: {dropped} entries arrived without extended attributes or ACLs that were sent: {why}");
        }
    }
}

/// Tells a sender's user of what does not travel, once.
pub fn tell_left_out(entries: u64, kept: Kept) {
    let what = match kept {
        Kept::None => "--xattrs sends them",
        _ => "they cannot be read, or are more than 128 KiB",
    };
    if entries > 0 {
        tell!("noctule: warning: extended attributes or ACLs of {entries} entries are not sent: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_asked_for_go_from_file_to_file_and_others_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let from = File::create(dir.path().join("from")).unwrap();
        if from.set_xattr("user.note", b"n").is_err() {
            println!("*** SKIPPED: this file system has no extended attributes");
            return;
        }
        from.set_xattr("user.empty", b"").unwrap();
        let handle = File::open(dir.path()).unwrap();
        assert_eq!(read(&handle, b"from", Kept::None), (Attributes::default(), true));
        let (found, is_less) = read(&handle, b"from", Kept::User);
        assert!(found.0.len() == 2 && !is_less);
        let to = File::create(dir.path().join("to")).unwrap();
        let setting = Setting::default();
        setting.set(&to, &found, Kept::User);
        assert_eq!((to.get_xattr("user.note").unwrap(), setting.dropped.load(Relaxed)), (Some(b"n".to_vec()), 0));
        // What was not asked for here is not set, whatever comes.
        let other = File::create(dir.path().join("other")).unwrap();
        setting.set(&other, &found, Kept::None);
        setting.set(&other, &Attributes(vec![(b"security.x".to_vec(), b"1".to_vec()), (b"trusted.x".to_vec(), vec![])]), Kept::User);
        assert_eq!(
            (other.list_xattr().unwrap().filter(|n| n.as_bytes().starts_with(b"user.")).count(), setting.dropped.load(Relaxed)),
            (0, 2)
        );
    }

    #[test]
    fn what_is_more_than_an_entry_can_have_is_unsound() {
        let one = |name: &[u8], length: usize| (name.to_vec(), vec![0; length]);
        assert!(Attributes(vec![one(b"user.a", MAX_VALUE), one(b"user.b", 0)]).is_sound());
        for unsound in [
            vec![one(b"user.a", MAX_VALUE + 1)],
            vec![one(b"", 1)],
            vec![one(b"user.\0", 1)],
            vec![one(b"user.a", 1), one(b"user.a", 2)],
            vec![one(b"user.a", MAX_VALUE), one(b"user.b", MAX_VALUE), one(b"user.c", 1)],
            vec![one(&[b'x'; 256], 1)],
        ] {
            assert!(!Attributes(unsound).is_sound());
        }
    }
}
