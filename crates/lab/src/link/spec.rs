//! The description of one direction of a link, the same for the simulator, the emulator and netem; written as flags, as `key=value` lists and in TOML.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::aqm::Aqm;
use super::jitter::JitterDist;
use super::loss::{Burst, LossAt, LossModel};
use super::queue::{Bucket, QueueLimit};
use noctule_proto::units::Time;

use super::trace::Trace;
use super::units::{Bandwidth, ParseQuantityError, Period, Probability, parse_duration, text_in_serde};

/// What is done with the name of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traces {
    /// Its file is read: the user of this machine named it.
    Read,
    /// It is refused, and no file is looked at: the name and its errors would tell of files that nobody offered.
    Refuse,
}

/// A link description that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A value that does not read.
    #[error("{key}: {source}")]
    Value {
        /// The key it was given for.
        key: String,
        /// What was wrong with it.
        source: ParseQuantityError,
    },
    /// A key that no link has.
    #[error(
        "a link has no `{0}`; it has rate, delay, jitter, jitter-dist, jitter-reorder, loss, loss-model, loss-at, \
             duplicate, reorder, corrupt, queue, aqm, ecn, bucket, policer, mtu, trace and outage"
    )]
    UnknownKey(String),
    /// A list that is not of the form `key=value,key=value`.
    #[error("`{0}` is not a list of key=value")]
    NotAList(String),
    /// A trace where no file may be named.
    #[error("traces are files, which cannot be named here; run them by a scenario file or from the command line")]
    NoTraces,
    /// A trace that cannot be read, or is none.
    #[error("trace {path}: {reason}")]
    Trace {
        /// Its file.
        path: String,
        /// Why.
        reason: String,
    },
    /// A change in mid-run that cannot be.
    #[error("the change `{text}`: {reason}; write a time and what changes then, as in 10s:rate=20mbit,loss=5%")]
    Change {
        /// What was given.
        text: String,
        /// Why not.
        reason: String,
    },
    /// Two values that contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

/// A share of packets that are held back, so that later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reorder {
    /// Share of packets held.
    pub share: Probability,
    /// Each is held for a time uniform between zero and this.
    pub by: Period,
}

/// A time in which nothing that leaves the transmitter arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Outage {
    /// When it begins.
    pub at: Period,
    /// How long it lasts.
    pub lasts: Period,
}

/// A change of the link in mid-run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Change {
    /// When.
    pub at: Period,
    /// What, as keys and values of [`LinkSpec::set`].
    pub settings: Vec<(String, String)>,
}

/// One direction of a link.
///
/// A packet passes, in this order: MTU, policer, loss `before`, queue (drop-tail or AQM, ECN), token bucket, transmitter (at a rate or
/// by a trace), outage, loss `after`,
/// corruption, duplication, delay with jitter, reordering. Rates count IP bytes: UDP payload + 28 (IPv4) or 48 (IPv6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkSpec {
    /// Capacity; none means that transmission takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bandwidth>,
    /// Propagation delay, one way.
    pub delay: Period,
    /// Size of the variation of the delay.
    pub jitter: Period,
    /// Its shape.
    pub jitter_dist: JitterDist,
    /// May a packet overtake another because of jitter? If not, it waits for the one before it.
    pub jitter_reorder: bool,
    /// Mean loss, for models that take it.
    pub loss: Probability,
    /// How losses are spread.
    pub loss_model: LossModel,
    /// Before or after the bottleneck.
    pub loss_at: LossAt,
    /// Share of packets that arrive twice.
    pub duplicate: Probability,
    /// Packets held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive with flipped bits (the UDP checksum is taken as not there).
    pub corrupt: Probability,
    /// Limit of the queue before the transmitter.
    pub queue: QueueLimit,
    /// A queue that decides itself what to drop, instead of drop-tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aqm: Option<Aqm>,
    /// Opportunities to deliver, one MTU each, instead of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Packets that waited longer than this are marked CE if they can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Period>,
    /// A shaper: packets wait for its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// A policer: packets without tokens are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policer: Option<Bucket>,
    /// Largest IP packet; larger ones are dropped silently.
    pub mtu: u32,
    /// Times in which nothing arrives.
    pub outage: Vec<Outage>,
    /// Changes in mid-run.
    pub at: Vec<Change>,
    /// Round trip that `bdp` in `queue` refers to; twice the delay if nobody says otherwise.
    #[serde(skip)]
    pub bdp_rtt: Option<Duration>,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Period::ZERO,
            jitter: Period::ZERO,
            jitter_dist: JitterDist::default(),
            jitter_reorder: false,
            loss: Probability::ZERO,
            loss_model: LossModel::default(),
            loss_at: LossAt::default(),
            duplicate: Probability::ZERO,
            reorder: None,
            corrupt: Probability::ZERO,
            queue: QueueLimit::default(),
            aqm: None,
            trace: None,
            ecn: None,
            bucket: None,
            policer: None,
            mtu: 1500,
            outage: Vec::new(),
            at: Vec::new(),
            bdp_rtt: None,
        }
    }
}

fn value<T: FromStr<Err = ParseQuantityError>>(key: &str, text: &str) -> Result<T, SpecError> {
    text.parse().map_err(|source| SpecError::Value { key: key.to_owned(), source })
}

impl LinkSpec {
    /// A clean link of `rate` and `delay`.
    pub fn new(rate: Bandwidth, delay: Duration) -> Self {
        Self { rate: Some(rate), delay: Period(delay), ..Self::default() }
    }

    /// Sets one property by the name that flags and files use for it; a trace is read.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), SpecError> {
        self.set_with(key, text, Traces::Read)
    }

    /// The same, and says whether files of traces are read.
    pub fn set_with(&mut self, key: &str, text: &str, traces: Traces) -> Result<(), SpecError> {
        let bad = |expected| SpecError::Value { key: key.to_owned(), source: ParseQuantityError::new(text, expected) };
        match key {
            "rate" if text == "none" => self.rate = None,
            "rate" => self.rate = Some(value(key, text)?),
            "delay" => self.delay = value(key, text)?,
            "jitter" => self.jitter = value(key, text)?,
            "jitter-dist" => self.jitter_dist = value(key, text)?,
            "jitter-reorder" => self.jitter_reorder = text.parse().map_err(|_| bad("true or false"))?,
            "loss" => self.loss = value(key, text)?,
            "loss-model" => self.loss_model = value(key, text)?,
            "loss-at" => self.loss_at = value(key, text)?,
            "duplicate" => self.duplicate = value(key, text)?,
            "reorder" if text == "none" => self.reorder = None,
            "reorder" => self.reorder = Some(value(key, text)?),
            "corrupt" => self.corrupt = value(key, text)?,
            "queue" => self.queue = value(key, text)?,
            "aqm" if text == "none" => self.aqm = None,
            "aqm" => self.aqm = Some(value(key, text)?),
            "trace" if text == "none" => self.trace = None,
            "trace" if traces == Traces::Refuse => return Err(SpecError::NoTraces),
            "trace" => self.trace = Some(Trace::read(text)?),
            "ecn" if text == "none" => self.ecn = None,
            "ecn" => self.ecn = Some(value(key, text)?),
            "bucket" if text == "none" => self.bucket = None,
            "bucket" => self.bucket = Some(value(key, text)?),
            "policer" if text == "none" => self.policer = None,
            "policer" => self.policer = Some(value(key, text)?),
            "mtu" => self.mtu = parse_mtu(text).ok_or_else(|| bad("an MTU between 576 and 65535"))?,
            "outage" => self.outage.push(value(key, text)?),
            _ => return Err(SpecError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }

    /// Sets the properties of a list `rate=50mbit,loss=20%`; a trace is read.
    pub fn set_list(&mut self, list: &str) -> Result<(), SpecError> {
        self.set_list_with(list, Traces::Read)
    }

    /// The same, and says whether files of traces are read.
    pub fn set_list_with(&mut self, list: &str, traces: Traces) -> Result<(), SpecError> {
        for (key, text) in parse_settings(list)? {
            self.set_with(&key, &text, traces)?;
        }
        Ok(())
    }

    /// Refuses what contradicts itself; also every state that a change in mid-run leads to.
    pub fn check(&self) -> Result<(), SpecError> {
        let contradiction = |text: String| Err(SpecError::Contradiction(text));
        if !self.loss.is_zero() && !self.loss_model.takes_mean() {
            return contradiction(format!("the loss model {} states its own loss; leave out loss {}", self.loss_model, self.loss));
        }
        if let LossModel::Gilbert(Burst::Packets(burst)) = self.loss_model {
            let p = self.loss.get();
            if p < 1.0 && p / ((1.0 - p) * burst) > 1.0 {
                return contradiction(format!(
                    "bursts of {burst} packets on average cannot make a loss of {}: gaps would be shorter than one packet",
                    self.loss
                ));
            }
        }
        if let Some(trace) = &self.trace {
            let other = [(self.rate.is_some(), "a rate"), (self.bucket.is_some(), "a token bucket")];
            if let Some((_, what)) = other.iter().find(|(given, _)| *given) {
                return contradiction(format!("the trace {} says when the link delivers; leave out {what}", trace.path()));
            }
        }
        if let Some(aqm) = self.aqm {
            if self.rate.is_none() && self.trace.is_none() {
                return contradiction(format!("{aqm} on a link without a rate: nothing ever waits there"));
            }
            if self.ecn.is_some() {
                return contradiction(format!("{aqm} marks by its own rule ({aqm}:ecn); leave out ecn"));
            }
        }
        if self.rate.is_none() && self.trace.is_none() && self.queue != QueueLimit::default() {
            return contradiction(format!("a queue limit of {} on a link without a rate: nothing ever waits there", self.queue));
        }
        if !(576..=65_535).contains(&self.mtu) {
            return contradiction(format!("an MTU of {} is not between 576 and 65535", self.mtu));
        }
        for (_, after) in self.states()? {
            after.check()?;
        }
        Ok(())
    }

    /// The state of the link after each change, in order of time; these states have no further changes.
    pub fn states(&self) -> Result<Vec<(Time, Self)>, SpecError> {
        let mut changes = self.at.clone();
        changes.sort_by_key(|c| c.at);
        let mut state = Self { at: Vec::new(), ..self.clone() };
        let mut states = Vec::with_capacity(changes.len());
        for change in changes {
            for (key, text) in &change.settings {
                state.set(key, text)?;
            }
            states.push((Time::ZERO + change.at.0, state.clone()));
        }
        Ok(states)
    }

    /// Nothing is lost before `from`; what the link loses otherwise begins then.
    pub fn lose_from(&mut self, from: Period) {
        let clean = Self::default();
        if self.loss.is_zero() && self.loss_model == clean.loss_model {
            return;
        }
        let settings = [("loss", self.loss.to_string()), ("loss-model", self.loss_model.to_string())];
        self.at.push(Change { at: from, settings: settings.map(|(key, value)| (key.to_owned(), value)).to_vec() });
        (self.loss, self.loss_model) = (clean.loss, clean.loss_model);
    }

    /// The link after its last change.
    pub fn last_state(&self) -> Self {
        self.states().ok().and_then(|states| states.into_iter().next_back()).map_or_else(|| self.clone(), |(_, state)| state)
    }

    /// Long-run share of lost packets of `wire_len` bytes, outages not counted.
    pub fn mean_loss(&self, wire_len: u32) -> f64 {
        self.loss_model.mean_loss(self.loss, wire_len)
    }

    /// What the link carries at most in IP bytes: its rate or the mean of its trace, or that of a token bucket or policer if lower.
    pub fn capacity(&self) -> Option<Bandwidth> {
        let traced = self.trace.as_ref().map(|trace| trace.mean_rate(self.mtu));
        [self.rate, traced, self.bucket.map(|b| b.rate), self.policer.map(|b| b.rate)].into_iter().flatten().min()
    }
}

fn parse_mtu(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (576..=65_535).contains(n))
}

/// Reads `key=value,key=value`.
pub fn parse_settings(list: &str) -> Result<Vec<(String, String)>, SpecError> {
    list.split(',')
        .map(|pair| {
            let (key, text) = pair.split_once('=').ok_or_else(|| SpecError::NotAList(list.to_owned()))?;
            Ok((key.trim().to_owned(), text.trim().to_owned()))
        })
        .collect()
}

impl FromStr for Reorder {
    type Err = ParseQuantityError;

    /// `1%:20ms`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseQuantityError::new(text, "reordering such as 1%:20ms (share of packets, held for at most)");
        let (share, by) = text.split_once(':').ok_or_else(err)?;
        Ok(Self { share: share.parse().map_err(|_| err())?, by: by.parse().map_err(|_| err())? })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share, self.by)
    }
}

impl FromStr for Outage {
    type Err = ParseQuantityError;

    /// `10s+5s`: from second ten on, for five seconds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseQuantityError::new(text, "an outage such as 10s+5s (when, how long)");
        let (at, lasts) = text.split_once('+').ok_or_else(err)?;
        Ok(Self { at: at.parse().map_err(|_| err())?, lasts: lasts.parse().map_err(|_| err())? })
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.at, self.lasts)
    }
}

impl FromStr for Change {
    type Err = SpecError;

    /// `10s:rate=20mbit,loss=5%`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |reason: String| SpecError::Change { text: text.to_owned(), reason };
        let (at, list) = text.split_once(':').ok_or_else(|| wrong("no colon after the time".to_owned()))?;
        let at = Period(parse_duration(at).map_err(|error| wrong(error.to_string()))?);
        let settings = parse_settings(list).map_err(|error| wrong(error.to_string()))?;
        // Tried on a link, so that a wrong key is found here and not in mid-run.
        let mut trial = LinkSpec::default();
        for (key, text) in &settings {
            // An outage has its own time; a queue or a trace has a past that a change would have to invent.
            match &**key {
                "outage" => return Err(wrong("an outage has times of its own; make it a property of the link, as 10s+5s".to_owned())),
                "aqm" => return Err(wrong("an aqm holds for the whole run; make it a property of the link".to_owned())),
                "trace" => {
                    return Err(wrong("a trace holds for the whole run, and traces are files; make it a property of the link".to_owned()));
                }
                _ => trial.set_with(key, text, Traces::Refuse).map_err(|error| wrong(error.to_string()))?,
            }
        }
        Ok(Self { at, settings })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.at)?;
        for (i, (key, text)) in self.settings.iter().enumerate() {
            write!(f, "{}{key}={text}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

text_in_serde!(Reorder, Outage, Change);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_sets_what_it_names() {
        let mut spec = LinkSpec::new(Bandwidth::from_mbit(100), Duration::from_millis(50));
        spec.set_list("rate=50mbit,loss=20%,loss-model=gilbert:10,queue=2bdp,reorder=1%:20ms,outage=10s+5s").unwrap();
        assert_eq!(spec.rate, Some(Bandwidth::from_mbit(50)));
        assert_eq!(spec.delay, Period::from_millis(50));
        assert_eq!(spec.mean_loss(1500), 0.2);
        assert_eq!(spec.outage[0].to_string(), "10s+5s");
        spec.check().unwrap();
    }

    #[test]
    fn wrong_keys_and_values_name_themselves() {
        let mut spec = LinkSpec::default();
        assert!(spec.set("los", "5%").unwrap_err().to_string().contains("`los`"));
        assert!(spec.set("loss", "500%").unwrap_err().to_string().contains("500%"));
        assert!(spec.set_list("rate").is_err());
        for (change, names) in [
            ("rate=5mbit", "no colon after the time"),
            ("10:rate=5mbit", "`10` is not a duration"),
            ("10s:rate", "`rate` is not a list"),
            ("10s:rats=5", "no `rats`"),
            ("10s:loss=500%", "loss: `500%` is not a share"),
            ("10s:outage=1s+1s", "an outage has times of its own"),
            ("10s:aqm=pie", "an aqm holds for the whole run"),
            // Not even looked at: a device would be read without an end.
            ("10s: trace =/dev/zero", "a trace holds for the whole run"),
        ] {
            let error = change.parse::<Change>().unwrap_err().to_string();
            assert!(error.contains(names) && error.contains(change) && error.contains("as in 10s:"), "{change}: {error}");
        }
        assert!(spec.set("aqm", "red").unwrap_err().to_string().contains("fq_codel["));
        assert!(spec.set("trace", "/no/such/file").unwrap_err().to_string().contains("/no/such/file"));
        assert_eq!(spec.set_list_with("loss=1%, trace\u{2003}= /dev/zero", Traces::Refuse), Err(SpecError::NoTraces));
        assert_eq!(spec.set_with("trace", "none", Traces::Refuse), Ok(()));
    }

    #[test]
    fn contradictions_are_refused() {
        let rate = Bandwidth::from_mbit(1);
        let refused = |list: &str| {
            let mut spec = LinkSpec::new(rate, Duration::ZERO);
            spec.set_list(list).unwrap();
            spec.check().is_err()
        };
        assert!(refused("loss=5%,loss-model=ber:1e-6"));
        assert!(refused("loss=90%,loss-model=gilbert:2"));
        assert!(refused("rate=none,queue=50ms"));
        let mut spec = LinkSpec::new(rate, Duration::ZERO);
        spec.loss_model = "gilbert:1.5".parse().unwrap();
        spec.at.push("5s:loss=80%".parse().unwrap());
        assert!(spec.check().is_err(), "a change that leads to a contradiction");
    }

    #[test]
    fn toml_and_flags_describe_the_same_link() {
        let from_toml: LinkSpec = toml::from_str(
            r#"
            rate = "100mbit"
            delay = "50ms"
            jitter = "1ms"
            jitter-dist = "normal"
            loss = "6%"
            loss-model = "gilbert:20ms"
            queue = "1bdp"
            at = ["10s:rate=20mbit"]
            "#,
        )
        .unwrap();
        let mut from_flags = LinkSpec::default();
        from_flags.set_list("rate=100mbit,delay=50ms,jitter=1ms,jitter-dist=normal,loss=6%,loss-model=gilbert:20ms").unwrap();
        from_flags.at.push("10s:rate=20mbit".parse().unwrap());
        assert_eq!(from_toml, from_flags);
        assert!(toml::from_str::<LinkSpec>("speed = \"1mbit\"").is_err());
        let json = serde_json::to_string(&from_flags).unwrap();
        assert_eq!(serde_json::from_str::<LinkSpec>(&json).unwrap(), from_flags);
    }
}
