//! Look-ups of names. The system's resolver takes a thread for as long as the name's servers like: a user has a share of the threads, and all users leave some.

use crate::wire::{Answer, Outcome};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long a look-up may take, its turn included.
const PATIENCE: Duration = Duration::from_secs(30);
/// Look-ups of one user at a time; further ones wait.
const MOST_OF_A_USER: usize = 32;
/// Look-ups of all users at a time: the runtime has 512 threads for what blocks, and files need some, too.
const MOST: usize = 256;
static ALL: Semaphore = Semaphore::const_new(MOST);

/// The look-ups of one user. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_OF_A_USER)))
    }
}

impl Lookups {
    /// The addresses of a name.
    ///
    /// # Errors
    /// It has none, or they were not found in time.
    pub async fn find(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, Answer> {
        let asked = name.to_owned();
        let found = timeout(PATIENCE, self.run(move || (asked.as_str(), port).to_socket_addrs().map(Vec::from_iter))).await;
        match found {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Answer::new(Outcome::NameNotFound, format!("{name}: {error}"))),
            Err(_) if self.0.available_permits() == 0 || ALL.available_permits() == 0 => {
                Err(Answer::new(Outcome::Busy, format!("{name}: too many other names are being looked up, and take long")))
            }
            Err(_) => Err(Answer::new(Outcome::NameNotFound, format!("{name}: the resolver does not answer"))),
        }
    }

    /// Does what blocks, when it is this user's turn.
    ///
    /// # Cancel safety
    /// Dropping the future gives up its turn; what has begun keeps its place until it has ended, since it keeps its thread.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        // Neither is ever closed.
        let own = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let of_all = ALL.acquire().await.map_err(io::Error::other)?;
        let job = spawn_blocking(move || {
            let _places = (own, of_all);
            work()
        });
        job.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::sync::{Mutex, PoisonError};
    use tokio::task::JoinSet;

    /// One that asks for names whose servers do not answer takes its share of the threads, also once it has given up.
    #[tokio::test]
    async fn slow_names_of_one_user_leave_threads_to_others() {
        let (slow, other) = (Lookups::default(), Lookups::default());
        let (release, held) = mpsc::channel::<()>();
        let (held, begun) = (Arc::new(Mutex::new(held)), Arc::new(AtomicUsize::new(0)));
        let mut asking = JoinSet::new();
        for _ in 0..1000 {
            let (slow, held, begun) = (slow.clone(), Arc::clone(&held), Arc::clone(&begun));
            asking.spawn(async move {
                slow.run(move || {
                    begun.fetch_add(1, SeqCst);
                    let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    Ok(())
                })
                .await
            });
        }
        while begun.load(SeqCst) < MOST_OF_A_USER {
            tokio::task::yield_now().await;
        }
        assert_eq!(other.run(|| Ok(7)).await.unwrap(), 7);
        asking.abort_all();
        while asking.join_next().await.is_some() {}
        assert_eq!(other.run(|| Ok(7)).await.unwrap(), 7);
        assert_eq!((begun.load(SeqCst), slow.0.available_permits()), (MOST_OF_A_USER, 0), "threads that are taken count");
        drop(release);
        while slow.0.available_permits() < MOST_OF_A_USER {
            tokio::task::yield_now().await;
        }
        assert_eq!(slow.run(|| Ok(7)).await.unwrap(), 7);
    }
}
