//! Keys of one direction and generation: one key per path and epoch, where the epoch follows from the packet number (P3).

use super::CryptoError;
use super::aead::{OpenJob, PacketKey, SealJob, integrity_limit};
use crate::ids::{PacketNumber, PathId};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use crate::wire::params::Cipher;
use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;
use zeroize::Zeroize;

/// A 32-byte secret; its memory is cleared when it is dropped.
#[derive(Clone)]
pub struct RawKey([u8; 32]);

impl RawKey {
    /// From uniformly random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for RawKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for RawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawKey(..)")
    }
}

/// Packets that one generation may seal in one direction; fresh keys are due long before (P3).
const HARD_LIMIT: u64 = 1 << 32;
/// Paths with keys at hand; more paths work, but derive theirs again.
const MAX_PATHS: usize = 16;
/// Epochs that a packet may lie ahead of the newest one opened: more cannot be lost in a row.
const MAX_AHEAD: u64 = 4096;
/// Past epochs kept per path.
const MAX_PAST: usize = 8;

/// Keys for sending.
pub struct SendKeys {
    secret: RawKey,
    cipher: Cipher,
    epoch_log2: u8,
    paths: Vec<(PathId, u64, Arc<PacketKey>)>,
    sealed: u64,
}

impl SendKeys {
    /// Keys from a generation's secret; 2^`epoch_log2` packets of a path share a key.
    pub fn new(secret: RawKey, cipher: Cipher, epoch_log2: u8) -> Self {
        Self { secret, cipher, epoch_log2: epoch_log2.min(63), paths: Vec::new(), sealed: 0 }
    }
    /// The job that seals packet `number` of `path`. Each number must be asked for once only: it is the nonce.
    pub fn seal_job(&mut self, path: PathId, number: PacketNumber) -> Result<SealJob, CryptoError> {
        if self.sealed >= HARD_LIMIT {
            return Err(CryptoError::Exhausted);
        }
        self.sealed += 1;
        let epoch = number.0 >> self.epoch_log2;
        let key = match self.paths.iter_mut().find(|p| p.0 == path) {
            Some((_, of, key)) if *of == epoch => key.clone(),
            Some(entry) => {
                entry.2 = Arc::new(PacketKey::derive(&self.secret, self.cipher, path, epoch)?);
                entry.1 = epoch;
                entry.2.clone()
            }
            None => {
                if self.paths.len() == MAX_PATHS {
                    self.paths.remove(0);
                }
                let key = Arc::new(PacketKey::derive(&self.secret, self.cipher, path, epoch)?);
                self.paths.push((path, epoch, key.clone()));
                key
            }
        };
        Ok(SealJob { nonce: key.nonce(path, number), key })
    }
    /// Packets sealed so far.
    pub fn sealed(&self) -> u64 {
        self.sealed
    }
}

impl fmt::Debug for SendKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendKeys").field("cipher", &self.cipher).field("sealed", &self.sealed).finish_non_exhaustive()
    }
}

struct EpochKey {
    epoch: u64,
    key: Arc<PacketKey>,
    /// A newer epoch has been seen, and this one ends then.
    expires: Time,
}

struct PathKeys {
    path: PathId,
    /// Highest epoch in which a packet was opened.
    newest: Option<u64>,
    /// Ascending: past epochs, the newest, at most one ahead.
    keys: VecDeque<EpochKey>,
}

/// Keys for receiving.
pub struct ReceiveKeys {
    secret: RawKey,
    cipher: Cipher,
    epoch_log2: u8,
    generation: u64,
    paths: Vec<PathKeys>,
    opened: u64,
    failed: u64,
}

impl ReceiveKeys {
    /// Keys from a generation's secret; 2^`epoch_log2` packets of a path share a key.
    pub fn new(secret: RawKey, cipher: Cipher, epoch_log2: u8, generation: u64) -> Self {
        Self { secret, cipher, epoch_log2: epoch_log2.min(63), generation, paths: Vec::new(), opened: 0, failed: 0 }
    }

    /// Where the keys of a path stand, from now on if not before.
    fn place_of(&mut self, path: PathId) -> usize {
        self.paths.iter().position(|p| p.path == path).unwrap_or_else(|| {
            if self.paths.len() == MAX_PATHS {
                self.paths.remove(0);
            }
            self.paths.push(PathKeys { path, newest: None, keys: VecDeque::new() });
            self.paths.len() - 1
        })
    }

    /// The job that opens packet `number` of `path`; `None` if the epoch's key is gone or lies too far ahead. Forged numbers change nothing.
    pub fn open_job(&mut self, now: Time, path: PathId, number: PacketNumber) -> Option<OpenJob> {
        let epoch = number.0 >> self.epoch_log2;
        let at = self.place_of(path);
        let entry = &mut self.paths[at];
        let key = match entry.keys.iter().rev().find(|k| k.epoch == epoch) {
            Some(k) if now < k.expires => k.key.clone(),
            Some(_) => return None,
            None => {
                let is_ahead = entry.newest.is_none_or(|newest| epoch > newest && epoch - newest <= MAX_AHEAD);
                if !is_ahead {
                    return None;
                }
                let key = Arc::new(PacketKey::derive(&self.secret, self.cipher, path, epoch).ok()?);
                // The next one is wanted soon. Others are kept only once a packet proves them, so that forgeries cannot push keys out.
                if entry.newest.is_some_and(|newest| epoch == newest + 1) {
                    entry.keys.push_back(EpochKey { epoch, key: key.clone(), expires: Time::MAX });
                }
                key
            }
        };
        Some(OpenJob { nonce: key.nonce(path, number), key, path, epoch, generation: self.generation })
    }

    /// The job opened its packet. When that begins a new epoch, the ones before it end after `retention` (a few PTOs).
    pub fn on_opened(&mut self, now: Time, job: &OpenJob, retention: Duration) {
        self.opened += 1;
        // The first packet of a link is opened before its keys stand here: what it shows counts all the same.
        let at = self.place_of(job.path);
        let entry = &mut self.paths[at];
        if entry.newest.is_none_or(|newest| job.epoch > newest) {
            let end = if switch::is_off(Mechanism::NeighbouringEpochs) { now } else { now + retention };
            for key in entry.keys.iter_mut().filter(|k| k.epoch < job.epoch) {
                key.expires = key.expires.min(end);
            }
            // Packets of skipped epochs may still be in flight.
            let first =
                entry.newest.map_or(job.epoch.saturating_sub(1), |newest| newest + 1).max(job.epoch.saturating_sub(MAX_PAST as u64));
            for epoch in first..=job.epoch {
                if entry.keys.back().is_some_and(|k| k.epoch >= epoch) {
                    continue;
                }
                if epoch == job.epoch {
                    entry.keys.push_back(EpochKey { epoch, key: job.key.clone(), expires: Time::MAX });
                } else if let Ok(key) = PacketKey::derive(&self.secret, self.cipher, job.path, epoch) {
                    entry.keys.push_back(EpochKey { epoch, key: Arc::new(key), expires: end });
                }
            }
            entry.newest = Some(job.epoch);
        }
        while entry.keys.len() > MAX_PAST + 2 || entry.keys.front().is_some_and(|k| k.expires <= now) {
            entry.keys.pop_front();
        }
    }

    /// A job did not open its packet. An error when so many failed that the link has to end (RFC 9001 §6.6).
    pub fn on_failed(&mut self) -> Result<(), CryptoError> {
        self.failed += 1;
        if self.failed >= integrity_limit(self.cipher) { Err(CryptoError::Exhausted) } else { Ok(()) }
    }
    /// Packets opened so far.
    pub fn opened(&self) -> u64 {
        self.opened
    }
}

impl fmt::Debug for ReceiveKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("ReceiveKeys");
        s.field("cipher", &self.cipher).field("generation", &self.generation).field("opened", &self.opened).field("failed", &self.failed);
        s.finish_non_exhaustive()
    }
}
