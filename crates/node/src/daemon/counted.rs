//! One of a number of things that are counted while they last.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts for as long as it lives.
pub struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// One more.
    pub fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
