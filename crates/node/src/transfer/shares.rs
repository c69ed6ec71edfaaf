//! Bounds what one key, and all keys together, take of a receiver: transfers at a time, memory of manifests, threads that use the disk.

use super::target::Refused;
use super::wire::Refusal;
use crate::failure::Failure;
use noctule::PublicKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Jobs of writers that use the disk at the same time. The rest of the runtime's 512 threads stays free, however much content arrives.
const DISK_JOBS: usize = 32;
/// One transfer may take this fraction (1/2) of the memory for all manifests.
const SHARE_OF_MEMORY: usize = 2;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Transfers of one key at a time.
    pub per_key: usize,
    /// Transfers at a time.
    pub in_all: usize,
    /// Bytes of memory for all manifests together.
    pub memory: usize,
    /// Bytes of memory for the blocks of all objects together; those of one key take half of it.
    pub objects: usize,
    /// Entries of a manifest.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_key: 16, in_all: 64, memory: 256 << 20, objects: 1 << 30, entries: 1_000_000 }
    }
}

/// What one key takes.
#[derive(Default)]
struct OfKey {
    places: usize,
    objects: usize,
}

#[derive(Default)]
struct Taken {
    by_key: HashMap<PublicKey, OfKey>,
    in_all: usize,
    memory: usize,
    objects: usize,
}

/// Shared by all transfers of a receiver.
pub struct Shares {
    /// What is allowed.
    pub limits: Limits,
    taken: Mutex<Taken>,
    disk: Semaphore,
}

impl Shares {
    /// Nothing is taken yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default(), disk: Semaphore::new(DISK_JOBS) })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a transfer of this key.
    ///
    /// # Errors
    /// Busy: the key, or all keys together, have as many transfers as allowed.
    pub fn enter(self: &Arc<Self>, key: PublicKey) -> Result<Place, Refused> {
        let mut taken = self.taken();
        if taken.in_all >= self.limits.in_all {
            return Err(busy(format!("{} transfers are under way, as many as it takes (--max-transfers)", taken.in_all)));
        }
        let of_key = taken.by_key.entry(key).or_default();
        let places = of_key.places;
        if places >= self.limits.per_key {
            return Err(busy(format!("{places} transfers of this key are under way, as many as one key may have")));
        }
        of_key.places += 1;
        taken.in_all += 1;
        Ok(Place { shares: Arc::clone(self), key, memory: 0, objects: 0 })
    }

    /// Runs short work that uses the disk on a thread of the runtime's pool, once one of the `DISK_JOBS` is free.
    pub async fn disk<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        let _permit = self.disk.acquire().await.map_err(|e| Failure::system("a thread", e))?;
        tokio::task::spawn_blocking(work).await.map_err(|e| Failure::system("a thread", e))
    }
}

fn busy(message: String) -> Refused {
    Refused { refusal: Refusal::Busy, path: Vec::new(), message }
}

/// The place of one transfer; given back when dropped.
pub struct Place {
    shares: Arc<Shares>,
    key: PublicKey,
    memory: usize,
    objects: usize,
}

impl Place {
    /// The peer's key.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// What is allowed.
    pub fn limits(&self) -> Limits {
        self.shares.limits
    }

    /// What all share.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Notes that the transfer now holds so many bytes in all.
    ///
    /// # Errors
    /// Too many for it, or too many for all together.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        let limit = self.shares.limits.memory;
        let mut taken = self.shares.taken();
        let others = taken.memory - self.memory;
        if bytes > limit / SHARE_OF_MEMORY {
            let text = format!("its manifest takes more than {} bytes of memory (--manifest-memory)", limit / SHARE_OF_MEMORY);
            return Err(Refused { refusal: Refusal::Protocol, path: Vec::new(), message: text });
        }
        if others + bytes > limit {
            return Err(busy(format!("the manifests of all transfers take {limit} bytes of memory, as much as they may")));
        }
        taken.memory = others + bytes;
        self.memory = bytes;
        Ok(())
    }

    /// Notes that the transfer is of an object whose blocks take at most so many bytes.
    ///
    /// # Errors
    /// Busy: the objects of its key, or of all, take as much as they may.
    pub fn hold_object(&mut self, bytes: usize) -> Result<(), Refused> {
        let limit = self.shares.limits.objects;
        let mut taken = self.shares.taken();
        let of_all = taken.objects - self.objects + bytes;
        let of_key = taken.by_key.get(&self.key).map_or(0, |of_key| of_key.objects) - self.objects + bytes;
        if of_all > limit || of_key > limit / SHARE_OF_MEMORY {
            let whose = if of_all > limit { "all objects" } else { "the objects of this key" };
            return Err(busy(format!("the blocks of {whose} take as much memory as they may (--object-memory {limit})")));
        }
        taken.objects = of_all;
        if let Some(taken) = taken.by_key.get_mut(&self.key) {
            taken.objects = of_key;
        }
        self.objects = bytes;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        taken.in_all -= 1;
        taken.memory -= self.memory;
        taken.objects -= self.objects;
        if let Some(of_key) = taken.by_key.get_mut(&self.key) {
            of_key.places -= 1;
            of_key.objects -= self.objects;
            if of_key.places == 0 {
                taken.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_all_together_have_so_many_places_and_get_them_back() {
        let shares = Shares::new(Limits { per_key: 2, in_all: 3, ..Limits::default() });
        let [a, b, c] = [PublicKey([1; 32]), PublicKey([2; 32]), PublicKey([3; 32])];
        let places = [shares.enter(a).unwrap(), shares.enter(a).unwrap()];
        assert!(shares.enter(a).is_err_and(|r| r.refusal == Refusal::Busy && r.message.contains("this key")));
        let third = shares.enter(b).unwrap();
        assert!(shares.enter(c).is_err_and(|r| r.refusal == Refusal::Busy && r.message.contains("--max-transfers")));
        drop(third);
        drop(shares.enter(c).unwrap());
        drop(places);
        let taken = shares.taken();
        assert!(taken.by_key.is_empty() && taken.in_all == 0);
    }

    /// Remains of issue 39: sixteen objects of one key, 64 MiB each, and sixty-four of all, were in no budget.
    #[test]
    fn objects_of_a_key_take_half_of_what_all_may_take_and_the_next_is_refused() {
        let shares = Shares::new(Limits { objects: 100, ..Limits::default() });
        let [a, b] = [PublicKey([1; 32]), PublicKey([2; 32])];
        let mut places = [a, a, b, b].map(|key| shares.enter(key).unwrap());
        places[0].hold_object(40).unwrap();
        assert!(places[1].hold_object(11).is_err_and(|r| r.refusal == Refusal::Busy && r.message.contains("of this key")));
        places[1].hold_object(10).unwrap();
        places[2].hold_object(50).unwrap();
        assert!(places[3].hold_object(1).is_err_and(|r| r.message.contains("of this key") || r.message.contains("all objects")));
        places[0].hold_object(0).unwrap();
        drop(places);
        assert!(shares.taken().objects == 0 && shares.taken().by_key.is_empty());
    }

    #[test]
    fn manifests_of_all_transfers_share_one_budget() {
        let shares = Shares::new(Limits { memory: 100, ..Limits::default() });
        let mut places: Vec<Place> = (0..3).map(|i| shares.enter(PublicKey([i; 32])).unwrap()).collect();
        assert!(places[0].hold(51).is_err_and(|r| r.refusal == Refusal::Protocol));
        places[0].hold(50).unwrap();
        places[1].hold(40).unwrap();
        assert!(places[2].hold(20).is_err_and(|r| r.refusal == Refusal::Busy));
        places[0].hold(30).unwrap();
        places[2].hold(20).unwrap();
        places.clear();
        assert_eq!(shares.taken().memory, 0);
    }
}
