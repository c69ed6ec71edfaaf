//! The entries of a manifest at the receiver, front-coded: each name is held as what it shares with the name before it and the rest, so that memory follows
//! the bytes that came and not the length of the names.

use super::entry::{Entry, Kind, Mtime};

/// Every so many entries a name is held whole: what the reading of one name costs at most, against bytes held that did not come.
const WHOLE_EVERY: usize = 64;

/// One entry but its name.
struct Head {
    seconds: i64,
    /// Size of a file, length of a link's target.
    value: u64,
    nanos: u32,
    /// Where the rest of its name begins; a link's target follows it.
    at: u32,
    rest: u16,
    shared: u16,
    mode: u16,
    kind: u8,
}

/// Entries in the order of their indexes.
#[derive(Default)]
pub struct Entries {
    heads: Vec<Head>,
    names: Vec<u8>,
    last: Vec<u8>,
}

impl Entries {
    /// Appends an entry whose name and target keep the limits of the wire; false if it does not fit any more.
    #[must_use]
    pub fn push(&mut self, entry: &Entry) -> bool {
        let shared = match self.heads.len() % WHOLE_EVERY {
            0 => 0,
            _ => self.last.iter().zip(&entry.path).take_while(|(a, b)| a == b).count(),
        };
        let (kind, value, target): (u8, u64, &[u8]) = match &entry.kind {
            Kind::File(size) => (0, *size, &[]),
            Kind::Dir => (1, 0, &[]),
            Kind::Link(target) => (2, target.len() as u64, target),
            Kind::Stream => (3, 0, &[]),
        };
        let rest = &entry.path[shared..];
        let (Ok(at), Ok(short), Ok(shared)) = (u32::try_from(self.names.len()), u16::try_from(rest.len()), u16::try_from(shared)) else {
            return false;
        };
        let Mtime { seconds, nanos } = entry.mtime;
        self.heads.push(Head { seconds, value, nanos, at, rest: short, shared, mode: entry.mode as u16, kind });
        self.names.extend_from_slice(rest);
        self.names.extend_from_slice(target);
        self.last.clone_from(&entry.path);
        true
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.heads.capacity() * size_of::<Head>() + self.names.capacity()
    }

    /// The entry of this index.
    pub fn get(&self, index: u64) -> Option<Entry> {
        let index = usize::try_from(index).ok().filter(|i| *i < self.heads.len())?;
        let mut name = Vec::new();
        for head in &self.heads[index - index % WHOLE_EVERY..=index] {
            self.rename(&mut name, head);
        }
        Some(self.entry(name, &self.heads[index]))
    }

    /// Content comes for the entry of this index.
    pub fn has_content(&self, index: u64) -> bool {
        usize::try_from(index).ok().and_then(|i| self.heads.get(i)).is_some_and(|head| matches!(head.kind, 0 | 3))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        let mut name = Vec::new();
        self.heads.iter().map(move |head| {
            self.rename(&mut name, head);
            self.entry(name.clone(), head)
        })
    }

    /// Indexes of two entries of the same name, if there are any.
    pub fn twins(&self) -> Option<(u64, u64)> {
        // Keyed at random: nobody can choose names whose hashes collide, and equal hashes are looked at again.
        use std::hash::{BuildHasher, RandomState};
        let state = RandomState::new();
        let mut hashes: Vec<(u64, u32)> = (0..).zip(self.iter()).map(|(i, e)| (state.hash_one(&e.path), i)).collect();
        hashes.sort_unstable();
        let same = |a: u32, b: u32| self.get(a.into()).map(|e| e.path) == self.get(b.into()).map(|e| e.path);
        hashes.windows(2).find(|w| w[0].0 == w[1].0 && same(w[0].1, w[1].1)).map(|w| (w[0].1.into(), w[1].1.into()))
    }

    fn rename(&self, name: &mut Vec<u8>, head: &Head) {
        name.truncate(head.shared.into());
        name.extend_from_slice(&self.names[head.at as usize..][..head.rest.into()]);
    }

    fn entry(&self, path: Vec<u8>, head: &Head) -> Entry {
        let kind = match head.kind {
            0 => Kind::File(head.value),
            1 => Kind::Dir,
            2 => Kind::Link(self.names[head.at as usize + usize::from(head.rest)..][..head.value as usize].to_vec()),
            _ => Kind::Stream,
        };
        Entry { path, kind, mode: head.mode.into(), mtime: Mtime { seconds: head.seconds, nanos: head.nanos } }
    }
}

#[cfg(test)]
impl FromIterator<Entry> for Entries {
    fn from_iter<T: IntoIterator<Item = Entry>>(entries: T) -> Self {
        let mut all = Self::default();
        assert!(entries.into_iter().all(|e| all.push(&e)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Record;
    use super::*;

    fn entry(path: String, kind: Kind) -> Entry {
        Entry { path: path.into(), kind, mode: 0o640, mtime: Mtime { seconds: -5, nanos: 7 } }
    }

    #[test]
    fn entries_are_held_as_they_came_in_order_and_by_index() {
        let kinds = [Kind::File(1 << 60), Kind::Dir, Kind::Link(b"../x".to_vec()), Kind::Stream];
        let plain: Vec<Entry> = (0..1000).map(|i| entry(format!("dir-{}/name-{i}", i / 100), kinds[i % 4].clone())).collect();
        let held: Entries = plain.iter().cloned().collect();
        assert_eq!(held.iter().collect::<Vec<_>>(), plain);
        for (index, entry) in (0..).zip(&plain) {
            assert_eq!(held.get(index).as_ref(), Some(entry));
            assert_eq!(held.has_content(index), entry.has_content());
        }
        assert_eq!((held.len(), held.get(1000), held.has_content(1000), held.twins()), (1000, None, false, None));
        let twice: Entries = plain.iter().chain([&plain[17]]).cloned().collect();
        assert_eq!(twice.twins(), Some((17, 1000)));
    }

    /// S4: 93 kB on the wire were 11.5 MB.
    #[test]
    fn memory_of_a_manifest_follows_the_bytes_that_came() {
        let deep = vec!["d".repeat(250); 15].join("/");
        let entries: Vec<Entry> = (0..30_000).map(|i| entry(format!("{deep}/{i:05}"), Kind::File(0))).collect();
        let mut wire = Vec::new();
        Record::Entries(entries.clone()).emit(&mut wire);
        let held: Entries = entries.into_iter().collect();
        assert!(held.memory() < 10 * wire.len(), "{} bytes for {}", held.memory(), wire.len());
    }
}
