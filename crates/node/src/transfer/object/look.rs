//! Work that hashes a file, on a thread, and how far it is meanwhile.

use super::super::hashing::Comparing;
use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Interval;

/// Between two words on how far it is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The work. If it is dropped, it ends soon.
pub struct Look<T> {
    job: JoinHandle<T>,
    comparing: Arc<Comparing>,
    tick: Interval,
}

/// What came of it so far.
pub enum Step<T> {
    /// It is over.
    Over(T),
    /// So many bytes of so many are hashed.
    Under(u64, u64),
}

impl<T: Send + 'static> Look<T> {
    /// Begins it.
    pub fn begin(work: impl FnOnce(&Comparing) -> T + Send + 'static) -> Self {
        let comparing = Arc::new(Comparing::default());
        let of_job = Arc::clone(&comparing);
        let mut tick = tokio::time::interval(TELL_EVERY);
        // What is over at once is not worth a word.
        tick.reset();
        Self { job: tokio::task::spawn_blocking(move || work(&of_job)), comparing, tick }
    }

    /// Its result, or each second how far it is. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The thread panicked.
    pub async fn next(&mut self) -> Result<Step<T>, Failure> {
        loop {
            tokio::select! {
                result = &mut self.job => return Ok(Step::Over(result.map_err(|e| Failure::system("a thread", e))?)),
                _ = self.tick.tick() => if let Some((done, total)) = self.comparing.under_way() {
                    return Ok(Step::Under(done, total));
                },
            }
        }
    }
}

impl<T> Drop for Look<T> {
    fn drop(&mut self) {
        self.comparing.is_over.store(true, Relaxed);
    }
}
