//! A file of records that ends at a bound: each is in it whole or not at all, and what is not is counted.

use std::io::{self, Write};

use serde::Serialize;

/// What a file of a capture holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub file: String,
    /// Packets or events in it.
    pub records: u64,
    /// Its length.
    pub bytes: u64,
    /// Records that came after the file had reached its bound.
    pub beyond: u64,
    /// Packets that the kernel could not hand over in time.
    pub unseen: u64,
}

/// Writes records until one does not fit: from then on there are none, so that the file is the beginning of what happened without a gap.
#[derive(Debug)]
pub struct Bounded<W> {
    out: W,
    limit: u64,
    records: u64,
    bytes: u64,
    beyond: u64,
    failed: Option<io::Error>,
    record: Vec<u8>,
}

impl<W: Write> Bounded<W> {
    /// A file that begins with `head`, which is in it whatever the limit is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(mut out: W, limit: u64, head: &[u8]) -> io::Result<Self> {
        out.write_all(head)?;
        Ok(Self { out, limit, records: 0, bytes: head.len() as u64, beyond: 0, failed: None, record: Vec::new() })
    }

    /// Adds a record that consists of these parts. The first failure to write is kept for [`finish`](Self::finish).
    pub fn put(&mut self, parts: &[&[u8]]) {
        if self.failed.is_some() {
            return;
        }
        let length = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if self.beyond > 0 || self.bytes + length > self.limit {
            self.beyond += 1;
            return;
        }
        // In one piece: a buffered file of a run that is killed ends with a whole record, unless the kernel cuts its last write.
        self.record.clear();
        parts.iter().for_each(|part| self.record.extend_from_slice(part));
        match self.out.write_all(&self.record) {
            Ok(()) => {
                self.records += 1;
                self.bytes += length;
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// A record cannot be made; as with a failure to write, the first one is kept.
    pub fn fail(&mut self, error: io::Error) {
        self.failed.get_or_insert(error);
    }

    /// What was put is in the file from now on, also if the run is killed.
    pub fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            self.fail(error);
        }
    }

    /// Everything is written; what the file of this name holds.
    ///
    /// # Errors
    /// Something was not written.
    pub fn finish(&mut self, file: &str) -> io::Result<Kept> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.out.flush()?;
        Ok(Kept { file: file.to_owned(), records: self.records, bytes: self.bytes, beyond: self.beyond, unseen: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_whole_or_not_there_and_none_follows_the_first_that_is_not() {
        let mut bytes = Vec::new();
        let mut file = Bounded::new(&mut bytes, 9, b"head").unwrap();
        for record in [&b"abc"[..], b"toolong", b"x"] {
            file.put(&[&record[..1], &record[1..]]);
        }
        let kept = file.finish("name").unwrap();
        assert_eq!(kept, Kept { file: "name".to_owned(), records: 1, bytes: 7, beyond: 2, unseen: 0 });
        assert_eq!(bytes, b"headabc");
    }

    #[test]
    fn a_failure_to_write_is_told_at_the_end() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if bytes == b"head" { Ok(4) } else { Err(io::ErrorKind::StorageFull.into()) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut file = Bounded::new(Full, 100, b"head").unwrap();
        file.put(&[b"abc"]);
        file.put(&[b"abc"]);
        assert_eq!(file.finish("name").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
