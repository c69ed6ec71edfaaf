//! `--limit-rate`: contents of all streams together, offered no faster than this.

use noctule::Bandwidth;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Time's worth of bytes that may be written at once.
const BURST: Duration = Duration::from_millis(20);
/// Smallest piece: below it, a slow rate would make a packet of its own for every few bytes.
const MIN_PIECE: usize = 1200;

/// Shares a rate among streams.
pub struct Limit {
    bytes_per_sec: f64,
    /// When everything that was granted so far is through.
    free_at: Mutex<Instant>,
}

impl Limit {
    /// Of this rate.
    pub fn new(rate: Bandwidth) -> Self {
        Self { bytes_per_sec: rate.bytes_per_sec(), free_at: Mutex::new(Instant::now()) }
    }

    /// Bytes to ask for at once.
    pub fn piece(&self) -> usize {
        ((self.bytes_per_sec * BURST.as_secs_f64()) as usize).max(MIN_PIECE)
    }

    /// Waits until `bytes` more may go.
    pub async fn wait(&self, bytes: usize) {
        let start = {
            let mut free_at = self.free_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let start = (*free_at).max(Instant::now());
            *free_at = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_sec);
            start
        };
        tokio::time::sleep_until(start).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_together_keep_the_rate_to_the_byte() {
        let limit = Limit::new(Bandwidth::from_bits_per_sec(8e6));
        let start = Instant::now();
        assert_eq!(limit.piece(), 20_000);
        tokio::join!(
            async {
                for _ in 0..50 {
                    limit.wait(20_000).await;
                }
            },
            async {
                for _ in 0..50 {
                    limit.wait(20_000).await;
                }
            }
        );
        // 2 MB at 1 MB/s; the last piece begins 20 ms before the end.
        assert_eq!(start.elapsed().as_millis(), 1980);
    }
}
