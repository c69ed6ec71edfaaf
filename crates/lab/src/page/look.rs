//! One look at a run's folder at a time, shared by all that follow the run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::answer::Problem;
use super::store::Run;
use super::view::RunSummary;

/// From one look at a folder to the next.
pub const LOOK: Duration = Duration::from_millis(250);

/// What was seen of a run: how far it is, and its folder.
pub type Seen = Result<Arc<(RunSummary, Run)>, Problem>;

/// The last look at one run. It is kept as long as somebody follows the run.
#[derive(Debug, Default)]
pub struct Look(Mutex<Option<(Instant, Seen)>>);

impl Look {
    /// What was seen less than [`LOOK`] before `now`; else `look` is asked, once for all that wait here.
    pub fn at(&self, now: Instant, look: impl FnOnce() -> Seen) -> Seen {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, seen)) = &*last
            && now.saturating_duration_since(*at) < LOOK
        {
            return seen.clone();
        }
        let seen = look();
        *last = Some((now, seen.clone()));
        seen
    }
}

/// Looks by the name of their run.
#[derive(Debug, Default)]
pub struct Looks(Mutex<HashMap<String, Weak<Look>>>);

impl Looks {
    /// The one of a run, for as long as it is held.
    pub fn of(&self, run: &str) -> Arc<Look> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.retain(|_, look| look.strong_count() > 0);
        if let Some(look) = looks.get(run).and_then(Weak::upgrade) {
            return look;
        }
        let look = Arc::default();
        looks.insert(run.to_owned(), Arc::downgrade(&look));
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_follow_a_run_share_one_look_at_it() {
        let looks = Looks::default();
        let count = std::cell::Cell::new(0);
        let look = || {
            count.set(count.get() + 1);
            Err(Problem::not_found("gone"))
        };
        let followers: Vec<Arc<Look>> = (0..8).map(|_| looks.of("one")).collect();
        let begin = Instant::now();
        for step in 0..4 {
            for (i, follower) in (0..).zip(&followers) {
                assert!(follower.at(begin + LOOK * step + Duration::from_millis(i), look).is_err());
            }
        }
        assert_eq!(count.get(), 4);
        assert!(looks.of("two").at(begin, look).is_err());
        assert_eq!(count.get(), 5, "another run is another look");
        drop(followers);
        // Nobody follows it any more: nothing of it is kept.
        assert!(looks.of("one").at(begin, look).is_err());
        assert_eq!((count.get(), looks.0.lock().unwrap().len()), (6, 1));
    }
}
