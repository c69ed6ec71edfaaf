//! Users of a server: what each may reach, how fast, how much and how many connections at a time. A user has keys; one key that is not listed is a user of
//! its own, a guest.

use crate::access::Rules;
use crate::lookup::Lookups;
use crate::rate::Pace;
use crate::wire::{Answer, Outcome, Transport};
use noctule::PublicKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// 2025-01-01: earlier than any version of this program.
const OLDEST: Duration = Duration::from_secs(20_089 * 86_400);

/// What a user may do.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Which targets.
    pub rules: Rules,
    /// Bytes per second from the user to its targets, over all of its connections.
    pub rate_up: Option<u64>,
    /// Bytes per second from the targets to the user.
    pub rate_down: Option<u64>,
    /// Connections and listeners at a time, and as many associations of datagrams besides.
    pub max_connections: usize,
    /// Bytes of both directions together.
    pub quotas: Vec<Quota>,
}

/// Bytes that a user may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The period that it holds for.
    pub period: Period,
    /// Bytes in a period, both directions together.
    pub bytes: u64,
}

/// When a quota begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Period {
    /// At midnight, UTC.
    Day,
    /// On the first of a month at midnight, UTC.
    Month,
    /// Never.
    Total,
}

impl Period {
    /// Which day or month it is.
    fn number(self, now: SystemTime) -> u64 {
        let days = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
        match self {
            Self::Day => days,
            Self::Month => month(days),
            Self::Total => 0,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Day => " per day is used up; it begins again at midnight, UTC",
            Self::Month => " per month is used up; it begins again on the first of the next month",
            Self::Total => " is used up",
        }
    }
}

/// Hosts without a clock of their own begin in 1970, until they hear the time.
fn is_unset(now: SystemTime) -> bool {
    now < UNIX_EPOCH + OLDEST
}

/// Months since the year 0, from days since 1970: the civil calendar counted from March, whose leap day is the last of a year.
fn month(days: u64) -> u64 {
    let day = days + 719_468;
    let (era, in_era) = (day / 146_097, day % 146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    // From March on: 31, 30, 31, 30, 31, 31, ...
    (era * 400 + year) * 12 + (5 * in_year + 2) / 153 + 2
}

/// What a user has moved, for quotas: what is kept over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Days since 1970, and bytes on that day.
    pub day: (u64, u64),
    /// Months since the year 0, and bytes in that month.
    pub month: (u64, u64),
    /// Bytes in all.
    pub total: u64,
}

impl Usage {
    fn add(&mut self, bytes: u64, now: SystemTime) {
        for (period, (number, sum)) in [(Period::Day, &mut self.day), (Period::Month, &mut self.month)] {
            let current = period.number(now);
            // A clock that was not set yet says nothing about periods.
            if *number != current && !is_unset(now) {
                (*number, *sum) = (current, 0);
            }
            *sum = sum.saturating_add(bytes);
        }
        self.total = self.total.saturating_add(bytes);
    }

    /// Bytes in the current period.
    pub fn of(&self, period: Period, now: SystemTime) -> u64 {
        match period {
            Period::Total => self.total,
            Period::Day if is_unset(now) => self.day.1,
            Period::Month if is_unset(now) => self.month.1,
            Period::Day if self.day.0 == period.number(now) => self.day.1,
            Period::Month if self.month.0 == period.number(now) => self.month.1,
            _ => 0,
        }
    }
}

/// A user of a file.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its name in logs and reports.
    pub name: String,
    /// Its public keys.
    pub keys: Vec<PublicKey>,
    /// What it may do.
    pub limits: Limits,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub up: AtomicU64,
    pub down: AtomicU64,
    pub connections: AtomicU64,
    pub refused: AtomicU64,
    /// Datagrams beyond the rate or the quota.
    pub dropped: AtomicU64,
}

/// A direction, as the user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the target.
    Up,
    /// From the target.
    Down,
}

/// A user that is there.
#[derive(Debug)]
pub(crate) struct User {
    pub name: String,
    /// It is listed, and not only a key.
    pub is_listed: bool,
    pub traffic: Traffic,
    pub lookups: Lookups,
    /// Of all guests together: each of them is forgotten once it has left.
    guests: Option<Arc<Traffic>>,
    state: Mutex<UserState>,
    /// Grows with every change of the limits.
    version: AtomicU64,
    /// Connections, and associations, at present.
    open: [AtomicUsize; 2],
}

#[derive(Debug)]
struct UserState {
    limits: Arc<Limits>,
    up: Pace,
    down: Pace,
    usage: Usage,
}

impl User {
    fn new(name: String, limits: Arc<Limits>, usage: Usage, guests: Option<Arc<Traffic>>) -> Self {
        let (up, down) = (Pace::new(limits.rate_up), Pace::new(limits.rate_down));
        let state = Mutex::new(UserState { up, down, limits, usage });
        Self {
            name,
            is_listed: guests.is_none(),
            traffic: Traffic::default(),
            lookups: Lookups::default(),
            guests,
            state,
            version: AtomicU64::new(0),
            open: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, UserState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections, or associations, at present.
    pub fn open(&self, transport: Transport) -> &AtomicUsize {
        &self.open[usize::from(transport == Transport::Udp)]
    }

    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.lock().limits)
    }

    /// Changes with the limits.
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    fn set_limits(&self, limits: Arc<Limits>) {
        let mut state = self.lock();
        state.up.set(limits.rate_up);
        state.down.set(limits.rate_down);
        state.limits = limits;
        self.version.fetch_add(1, Relaxed);
    }

    pub fn usage(&self) -> Usage {
        self.lock().usage
    }

    /// Bytes per second of late, up and down.
    pub fn rates(&self) -> (u64, u64) {
        let state = self.lock();
        (state.up.shown(), state.down.shown())
    }

    pub fn chunk(&self, direction: Direction) -> usize {
        let state = self.lock();
        if direction == Direction::Up { state.up.chunk() } else { state.down.chunk() }
    }

    /// Adds to this user's count of something, and to that of all guests if it is one.
    pub fn add(&self, count: impl Fn(&Traffic) -> &AtomicU64, more: u64) {
        count(&self.traffic).fetch_add(more, Relaxed);
        if let Some(guests) = &self.guests {
            count(guests).fetch_add(more, Relaxed);
        }
    }

    fn count(&self, direction: Direction, bytes: u64) {
        self.add(|traffic| if direction == Direction::Up { &traffic.up } else { &traffic.down }, bytes);
    }

    /// When bytes that were read from a connection may be passed on.
    ///
    /// # Errors
    /// A quota is used up.
    pub fn take(&self, direction: Direction, bytes: u64) -> Result<Instant, String> {
        let at = {
            let (mut state, now) = (self.lock(), SystemTime::now());
            over_quota(&state, now)?;
            state.usage.add(bytes, now);
            if direction == Direction::Up { state.up.take(bytes) } else { state.down.take(bytes) }
        };
        self.count(direction, bytes);
        Ok(at)
    }

    /// Bytes of a connection that ended while they waited for the rate: others need not wait for them. They were read, so that they count for quotas.
    pub fn give_back(&self, direction: Direction, bytes: u64) {
        let mut state = self.lock();
        if direction == Direction::Up { state.up.give_back(bytes) } else { state.down.give_back(bytes) }
    }

    /// Whether a datagram goes on; one that does not is counted.
    pub fn take_datagram(&self, direction: Direction, bytes: u64) -> bool {
        let passes = {
            let (mut state, now) = (self.lock(), SystemTime::now());
            let passes = over_quota(&state, now).is_ok() && {
                let pace = if direction == Direction::Up { &mut state.up } else { &mut state.down };
                pace.take_datagram(bytes)
            };
            if passes {
                state.usage.add(bytes, now);
            }
            passes
        };
        match passes {
            true => self.count(direction, bytes),
            false => self.add(|traffic| &traffic.dropped, 1),
        }
        passes
    }

    /// Whether a connection may begin beside `open` others.
    ///
    /// # Errors
    /// The answer for the client.
    pub fn admit(&self, open: usize, what: &str) -> Result<(), Answer> {
        let state = self.lock();
        let most = state.limits.max_connections;
        if open >= most {
            let whose = if self.is_listed { "this user" } else { "this key" };
            return Err(Answer::new(Outcome::Busy, format!("{whose} has {most} {what} already, the most that are allowed there")));
        }
        over_quota(&state, SystemTime::now()).map_err(|why| Answer::new(Outcome::Denied, why))
    }
}

fn over_quota(state: &UserState, now: SystemTime) -> Result<(), String> {
    match state.limits.quotas.iter().find(|quota| state.usage.of(quota.period, now) >= quota.bytes) {
        Some(quota) => Err(format!("the quota of {} bytes{}", quota.bytes, quota.period.words())),
        None => Ok(()),
    }
}

/// All users of a server.
#[derive(Debug, Default)]
pub(crate) struct Users {
    listed: HashMap<PublicKey, Arc<User>>,
    by_name: BTreeMap<String, Arc<User>>,
    guests: HashMap<PublicKey, Weak<User>>,
    /// Of guests.
    limits: Arc<Limits>,
    guest_traffic: Arc<Traffic>,
    /// Of users that are not listed any more, and may be again.
    left: BTreeMap<String, Usage>,
}

impl Users {
    pub fn new(limits: Limits, accounts: Vec<Account>, usage: BTreeMap<String, Usage>) -> Self {
        let mut users = Self { left: usage, ..Self::default() };
        users.configure(limits, accounts);
        users
    }

    /// Makes them what a file says. Users that stay keep their counts.
    pub fn configure(&mut self, limits: Limits, accounts: Vec<Account>) {
        self.limits = Arc::new(limits);
        self.guests.values().filter_map(Weak::upgrade).for_each(|guest| guest.set_limits(Arc::clone(&self.limits)));
        let mut before = std::mem::take(&mut self.by_name);
        self.listed.clear();
        for Account { name, keys, limits } in accounts {
            let limits = Arc::new(limits);
            let user = match before.remove(&name) {
                Some(user) => {
                    user.set_limits(limits);
                    user
                }
                None => Arc::new(User::new(name.clone(), limits, self.left.remove(&name).unwrap_or_default(), None)),
            };
            self.listed.extend(keys.into_iter().map(|key| (key, Arc::clone(&user))));
            self.by_name.insert(name, user);
        }
        for (name, user) in before {
            self.left.insert(name, user.usage());
        }
    }

    /// The user of a key.
    pub fn of(&mut self, key: PublicKey) -> Arc<User> {
        if let Some(user) = self.listed.get(&key) {
            return Arc::clone(user);
        }
        if let Some(guest) = self.guests.get(&key).and_then(Weak::upgrade) {
            return guest;
        }
        // Users that have left take no more memory than those present.
        if self.guests.len().is_power_of_two() {
            self.guests.retain(|_, guest| guest.strong_count() > 0);
        }
        let traffic = Arc::clone(&self.guest_traffic);
        let guest = Arc::new(User::new(key.to_string(), Arc::clone(&self.limits), Usage::default(), Some(traffic)));
        self.guests.insert(key, Arc::downgrade(&guest));
        guest
    }

    /// Those of the file, then guests that are there.
    pub fn all(&self) -> impl Iterator<Item = Arc<User>> {
        self.by_name.values().cloned().chain(self.guests.values().filter_map(Weak::upgrade))
    }

    /// Counts of all guests, those that have left too.
    pub fn guest_traffic(&self) -> &Traffic {
        &self.guest_traffic
    }

    /// What is to be kept.
    pub fn usage(&self) -> BTreeMap<String, Usage> {
        let listed = self.by_name.iter().map(|(name, user)| (name.clone(), user.usage()));
        self.left.clone().into_iter().chain(listed).filter(|(_, usage)| usage.total > 0).collect()
    }
}

/// Seconds of a duration, for reports.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(days * 86_400)
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        // 1970-01-01, -31, 02-01; 2024-02-29, 03-01; 2100-02-28, 03-01 (no leap year); 2026-12-31, 2027-01-01.
        let first = month(0);
        for (days, months) in [
            (30, 0),
            (31, 1),
            (19_782, 54 * 12 + 1),
            (19_783, 54 * 12 + 2),
            (47_540, 130 * 12 + 1),
            (47_541, 130 * 12 + 2),
            (20_818, 56 * 12 + 11),
            (20_819, 57 * 12),
        ] {
            assert_eq!(month(days) - first, months, "{days}");
        }
    }

    #[test]
    fn a_period_begins_again_and_what_was_moved_in_all_does_not() {
        let mut usage = Usage::default();
        usage.add(10, at(20_818));
        usage.add(5, at(20_819));
        let of = |usage: &Usage, days| [Period::Day, Period::Month, Period::Total].map(|period| usage.of(period, at(days)));
        assert_eq!(of(&usage, 20_819), [5, 5, 15]);
        assert_eq!(of(&usage, 20_820), [0, 5, 15]);
        assert_eq!(of(&usage, 20_850), [0, 0, 15]);
        // A host that does not know the time yet forgets nothing.
        assert_eq!(of(&usage, 0), [5, 5, 15]);
        usage.add(1, at(0));
        assert_eq!(of(&usage, 20_819), [6, 6, 16]);
    }

    fn key(n: u8) -> PublicKey {
        noctule::SecretKey::from_bytes([n; 32]).public()
    }

    fn account(name: &str, n: u8, bytes: u64) -> Account {
        let quotas = vec![Quota { period: Period::Total, bytes }];
        Account { name: name.into(), keys: vec![key(n)], limits: Limits { quotas, max_connections: 1, ..Limits::default() } }
    }

    #[tokio::test]
    async fn a_user_that_leaves_the_file_and_comes_back_has_its_counts() {
        let mut users = Users::new(Limits::default(), vec![account("ann", 1, 100)], BTreeMap::new());
        let ann = users.of(key(1));
        assert!(ann.take(Direction::Up, 99).is_ok() && ann.take_datagram(Direction::Down, 1));
        assert!(ann.take(Direction::Up, 1).is_err() && !ann.take_datagram(Direction::Up, 1));
        assert_eq!(ann.admit(1, "connections").unwrap_err().outcome, Outcome::Busy);
        let full = ann.admit(0, "connections").unwrap_err();
        assert!(full.outcome == Outcome::Denied && full.text.raw().contains("quota of 100 bytes"), "{full:?}");
        users.configure(Limits::default(), vec![]);
        assert_eq!(users.of(key(1)).name, key(1).to_string());
        let kept = users.usage();
        users.configure(Limits::default(), vec![account("ann", 2, 200)]);
        assert_eq!(users.of(key(2)).usage().total, 100);
        let users = Users::new(Limits::default(), vec![account("ann", 1, 100)], kept);
        assert_eq!(users.usage()["ann"].total, 100, "after a restart");
    }
}
