//! A bounded number of conversations on a local port: the oldest is closed for a new one, so that a client that sends or reads nothing cannot keep others out.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;
use tokio::task::AbortHandle;

/// See the file's heading.
pub struct Places {
    most: usize,
    patience: Duration,
    running: VecDeque<AbortHandle>,
}

impl Places {
    /// At most `most` conversations at a time, none longer than `patience`.
    pub fn new(most: usize, patience: Duration) -> Self {
        Self { most, patience, running: VecDeque::with_capacity(most) }
    }

    /// Begins a conversation; ends the oldest if there is no place for it.
    pub fn begin(&mut self, conversation: impl Future<Output = ()> + Send + 'static) {
        self.running.retain(|running| !running.is_finished());
        if self.running.len() >= self.most
            && let Some(oldest) = self.running.pop_front()
        {
            oldest.abort();
        }
        let patience = self.patience;
        let task = tokio::spawn(async move {
            // One that is too slow is nobody's loss.
            let _ = tokio::time::timeout(patience, conversation).await;
        });
        self.running.push_back(task.abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn the_oldest_gives_way_to_the_newest() {
        let mut places = Places::new(2, Duration::from_secs(3600));
        let mut ended = Vec::new();
        for _ in 0..3 {
            let (sender, receiver) = oneshot::channel::<()>();
            ended.push(receiver);
            places.begin(async move {
                let _held = sender;
                std::future::pending::<()>().await;
            });
        }
        // Dropped with its task: the other two are still there.
        assert!((&mut ended[0]).await.is_err());
        assert!(ended[1].try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Empty));
        assert_eq!(places.running.len(), 2);
    }
}
