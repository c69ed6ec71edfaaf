//! Loss models: which packets a link loses. The model is the description, the process is its state in a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::random::{Dice, Purpose};
use noctule_proto::units::Time;

use super::units::{ParseQuantityError, Period, Probability, parse_duration, text_in_serde};

/// Where on the link packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossAt {
    /// After the bottleneck: a lost packet has used capacity, as on a radio (P24). The limit is C(1-p).
    #[default]
    After,
    /// Before the bottleneck: a lost packet uses nothing, as in netem. The limit is C.
    Before,
}

impl FromStr for LossAt {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "after" => Ok(Self::After),
            "before" => Ok(Self::Before),
            _ => Err(ParseQuantityError::new(text, "`after` or `before` (the bottleneck)")),
        }
    }
}

/// The length of a loss burst: the clock of the burst runs in packets or in time (P25).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Burst {
    /// Mean length in packets offered to the link.
    Packets(f64),
    /// Mean length in time, whatever is sent.
    Time(Period),
}

/// How the losses of a link are spread; the mean of `Random` and `Gilbert` is the link's `loss`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LossModel {
    /// Each packet on its own.
    #[default]
    Random,
    /// Gilbert 1960: bursts in which all is lost, of the given mean length; the gaps follow from the mean loss.
    Gilbert(Burst),
    /// Elliott 1963, with the parameters of netem's `gemodel`, one step per packet.
    GilbertElliott {
        /// Good to bad.
        p: Probability,
        /// Bad to good.
        r: Probability,
        /// Loss in the bad state (`1-h`).
        loss_bad: Probability,
        /// Loss in the good state (`1-k`).
        loss_good: Probability,
    },
    /// The four-state Markov chain of netem (`loss state`): gaps and bursts, each with and without loss.
    Markov4 {
        /// Gap, received to burst, lost.
        p13: Probability,
        /// Burst, lost to gap, received.
        p31: Probability,
        /// Burst, lost to burst, received.
        p32: Probability,
        /// Burst, received to burst, lost.
        p23: Probability,
        /// Gap, received to gap, lost; the next packet is received.
        p14: Probability,
    },
    /// Independent bit errors; a packet with one is discarded by the layer below, so that long packets are lost more often.
    BitErrors(Probability),
}

impl LossModel {
    /// True if the mean comes from the link's `loss` and not from the model.
    pub fn takes_mean(&self) -> bool {
        matches!(self, Self::Random | Self::Gilbert(_))
    }

    /// The long-run share of lost packets of `wire_len` bytes, where `mean` is the link's `loss`.
    pub fn mean_loss(&self, mean: Probability, wire_len: u32) -> f64 {
        match *self {
            Self::Random | Self::Gilbert(_) => mean.get(),
            Self::GilbertElliott { p, r, loss_bad, loss_good } => {
                let total = p.get() + r.get();
                let bad = if total > 0.0 { p.get() / total } else { 0.0 };
                bad * loss_bad.get() + (1.0 - bad) * loss_good.get()
            }
            Self::Markov4 { p13, p31, p32, p23, p14 } => {
                // Stationary shares relative to state 1.
                let s3 = if p13.is_zero() { 0.0 } else { p13.get() / p31.get() };
                let s2 = if s3 == 0.0 || p32.is_zero() { 0.0 } else { s3 * p32.get() / p23.get() };
                let s4 = p14.get();
                (s3 + s4) / (1.0 + s2 + s3 + s4)
            }
            Self::BitErrors(ber) => packet_error(ber, wire_len),
        }
    }
}

/// Share of packets of `wire_len` bytes with at least one wrong bit.
fn packet_error(ber: Probability, wire_len: u32) -> f64 {
    // ln_1p and exp_m1 keep the digits when the rate is 1e-8.
    -f64::exp_m1(f64::from(wire_len) * 8.0 * f64::ln_1p(-ber.get()))
}

impl FromStr for LossModel {
    type Err = ParseQuantityError;

    /// `random`, `gilbert:10` (packets), `gilbert:20ms`, `gemodel:P:R[:1-H[:1-K]]`, `markov4:P13:P31:P32:P23:P14`, `ber:1e-6`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || {
            ParseQuantityError::new(
                text,
                "a loss model: random, gilbert:10 (mean burst in packets), gilbert:20ms (in time), \
                 gemodel:P:R:1-H:1-K, markov4:P13:P31:P32:P23:P14 or ber:1e-6",
            )
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let args: Vec<&str> = parts.collect();
        let probabilities = || args.iter().map(|a| a.parse::<Probability>()).collect::<Result<Vec<_>, _>>();
        match (name, args.len()) {
            ("random", 0) => Ok(Self::Random),
            ("gilbert", 1) => {
                if let Ok(packets) = args[0].parse::<f64>() {
                    if !(1.0..=1e9).contains(&packets) {
                        return Err(err());
                    }
                    return Ok(Self::Gilbert(Burst::Packets(packets)));
                }
                let time = parse_duration(args[0]).map_err(|_| err())?;
                if time.is_zero() {
                    return Err(err());
                }
                Ok(Self::Gilbert(Burst::Time(Period(time))))
            }
            ("gemodel", 2..=4) => {
                let v = probabilities()?;
                Ok(Self::GilbertElliott {
                    p: v[0],
                    r: v[1],
                    loss_bad: v.get(2).copied().unwrap_or(Probability::percent(100.0)),
                    loss_good: v.get(3).copied().unwrap_or(Probability::ZERO),
                })
            }
            ("markov4", 5) => {
                let v = probabilities()?;
                let (p13, p31, p32, p23, p14) = (v[0], v[1], v[2], v[3], v[4]);
                // A state must be left, and the shares that leave it cannot exceed one.
                let stuck = (!p13.is_zero() && p31.is_zero()) || (!p32.is_zero() && p23.is_zero());
                if stuck || p13.get() + p14.get() > 1.0 || p31.get() + p32.get() > 1.0 {
                    return Err(err());
                }
                Ok(Self::Markov4 { p13, p31, p32, p23, p14 })
            }
            ("ber", 1) => Ok(Self::BitErrors(args[0].parse()?)),
            _ => Err(err()),
        }
    }
}

impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Gilbert(Burst::Packets(n)) => write!(f, "gilbert:{n}"),
            Self::Gilbert(Burst::Time(t)) => write!(f, "gilbert:{t}"),
            Self::GilbertElliott { p, r, loss_bad, loss_good } => write!(f, "gemodel:{p}:{r}:{loss_bad}:{loss_good}"),
            Self::Markov4 { p13, p31, p32, p23, p14 } => write!(f, "markov4:{p13}:{p31}:{p32}:{p23}:{p14}"),
            Self::BitErrors(ber) => write!(f, "ber:{:e}", ber.get()),
        }
    }
}

text_in_serde!(LossModel);

/// The state of a loss model in a run.
#[derive(Debug, Clone)]
pub(crate) struct LossProcess {
    model: LossModel,
    mean: Probability,
    dice: Dice,
    /// Gilbert and Elliott: the bad state; Markov: 1 to 4.
    state: u8,
    /// End of the current state of a burst clock that runs in time.
    state_ends: Time,
}

impl LossProcess {
    pub(crate) fn new(model: LossModel, mean: Probability, seed: u64) -> Self {
        Self { model, mean, dice: Dice::new(seed, Purpose::Loss), state: 1, state_ends: Time::ZERO }
    }

    /// A change in mid-run: new parameters, the same dice.
    pub(crate) fn change(&mut self, model: LossModel, mean: Probability) {
        if model != self.model || mean != self.mean {
            self.model = model;
            self.mean = mean;
            self.state = 1;
            self.state_ends = Time::ZERO;
        }
    }

    /// Is the packet that passes at `now` lost? Calls come in order of time.
    pub(crate) fn is_lost(&mut self, now: Time, wire_len: u32) -> bool {
        match self.model {
            LossModel::Random => !self.mean.is_zero() && self.dice.hit(self.mean),
            LossModel::Gilbert(_) if self.mean.is_zero() => false,
            LossModel::Gilbert(_) if self.mean.get() >= 1.0 => true,
            LossModel::Gilbert(Burst::Packets(burst)) => {
                let leave = if self.state == BAD { 1.0 / burst } else { gilbert_enter(self.mean, burst) };
                if self.dice.unit() < leave {
                    self.state ^= GOOD ^ BAD;
                }
                self.state == BAD
            }
            LossModel::Gilbert(Burst::Time(mean_burst)) => {
                if self.state_ends == Time::ZERO {
                    // Begin in the stationary distribution, not always in the good state.
                    self.state = if self.dice.hit(self.mean) { BAD } else { GOOD };
                    self.state_ends = now + self.sojourn(mean_burst);
                }
                while now >= self.state_ends {
                    self.state ^= GOOD ^ BAD;
                    let lasts = self.sojourn(mean_burst);
                    self.state_ends += lasts;
                }
                self.state == BAD
            }
            LossModel::GilbertElliott { p, r, loss_bad, loss_good } => {
                let leave = if self.state == BAD { r } else { p };
                if self.dice.hit(leave) {
                    self.state ^= GOOD ^ BAD;
                }
                self.dice.hit(if self.state == BAD { loss_bad } else { loss_good })
            }
            LossModel::Markov4 { p13, p31, p32, p23, p14 } => {
                let x = self.dice.unit();
                let (p13, p31, p32, p23, p14) = (p13.get(), p31.get(), p32.get(), p23.get(), p14.get());
                self.state = match self.state {
                    1 if x < p14 => 4,
                    1 if x < p14 + p13 => 3,
                    2 if x < p23 => 3,
                    3 if x < p32 => 2,
                    3 if x < p32 + p31 => 1,
                    4 => 1,
                    same => same,
                };
                self.state >= 3
            }
            LossModel::BitErrors(ber) => self.dice.unit() < packet_error(ber, wire_len),
        }
    }

    /// How long the current state lasts when the burst clock runs in time: exponential, never zero.
    fn sojourn(&mut self, mean_burst: Period) -> std::time::Duration {
        let p = self.mean.get();
        let mean_burst = mean_burst.as_nanos() as f64;
        let mean = if self.state == BAD { mean_burst } else { mean_burst * (1.0 - p) / p };
        std::time::Duration::from_nanos((mean * self.dice.exponential()) as u64 + 1)
    }
}

const GOOD: u8 = 1;
const BAD: u8 = 2;

/// Good to bad, so that bursts of mean length `burst` give the mean loss.
fn gilbert_enter(mean: Probability, burst: f64) -> f64 {
    mean.get() / ((1.0 - mean.get()) * burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share lost and mean burst length of `n` packets one `gap_ns` apart.
    fn observe(model: &str, mean: &str, n: u64, gap_ns: u64, wire_len: u32) -> (f64, f64) {
        let mut process = LossProcess::new(model.parse().unwrap(), mean.parse().unwrap(), 11);
        let (mut lost, mut bursts, mut before) = (0u64, 0u64, false);
        for i in 0..n {
            let now = process.is_lost(Time::from_nanos(i * gap_ns), wire_len);
            lost += u64::from(now);
            bursts += u64::from(now && !before);
            before = now;
        }
        (lost as f64 / n as f64, lost as f64 / bursts.max(1) as f64)
    }

    fn assert_near(value: f64, expected: f64, tolerance: f64, what: &str) {
        assert!((value - expected).abs() <= tolerance, "{what}: {value}, expected {expected} within {tolerance}");
    }

    #[test]
    fn random_loss_has_its_mean_and_no_memory() {
        let (share, burst) = observe("random", "10%", 1_000_000, 1, 1500);
        // Four standard deviations of a binomial share: 4 * sqrt(p(1-p)/n).
        assert_near(share, 0.10, 0.0012, "share");
        assert_near(burst, 1.0 / 0.9, 0.005, "burst");
    }

    #[test]
    fn gilbert_bursts_in_packets_have_their_mean_length_and_loss() {
        let (share, burst) = observe("gilbert:10", "10%", 2_000_000, 1, 1500);
        assert_near(burst, 10.0, 0.4, "burst");
        assert_near(share, 0.10, 0.005, "share");
    }

    #[test]
    fn gilbert_bursts_in_time_do_not_depend_on_the_packet_rate() {
        // 20 ms bursts, a packet every 100 us: 200 packets per burst; every 1 ms: 20 packets.
        let (share, _) = observe("gilbert:20ms", "10%", 4_000_000, 100_000, 1500);
        assert_near(share, 0.10, 0.01, "share, dense");
        let (share, burst) = observe("gilbert:20ms", "10%", 2_000_000, 1_000_000, 1500);
        assert_near(share, 0.10, 0.005, "share, sparse");
        assert_near(burst, 20.5, 1.0, "burst, sparse");
    }

    #[test]
    fn elliott_mixes_the_losses_of_both_states() {
        let model: LossModel = "gemodel:1%:10%:50%:1%".parse().unwrap();
        let expected = model.mean_loss(Probability::ZERO, 1500);
        assert_near(expected, (0.5 + 0.1) / 11.0, 1e-12, "theory");
        assert_near(observe("gemodel:1%:10%:50%:1%", "0", 2_000_000, 1, 1500).0, expected, 0.003, "share");
    }

    #[test]
    fn markov_chain_reaches_its_stationary_loss() {
        let text = "markov4:2%:20%:30%:60%:1%";
        let expected = text.parse::<LossModel>().unwrap().mean_loss(Probability::ZERO, 1500);
        assert_near(observe(text, "0", 2_000_000, 1, 1500).0, expected, 0.003, "share");
    }

    #[test]
    fn bit_errors_hit_long_packets_more() {
        let expected_long = 1.0 - (1.0f64 - 1e-5).powi(1500 * 8);
        let expected_short = 1.0 - (1.0f64 - 1e-5).powi(100 * 8);
        assert_near(observe("ber:1e-5", "0", 500_000, 1, 1500).0, expected_long, 0.002, "long");
        assert_near(observe("ber:1e-5", "0", 500_000, 1, 100).0, expected_short, 0.001, "short");
    }

    #[test]
    fn models_print_as_they_are_read() {
        for text in ["random", "gilbert:10", "gilbert:20ms", "gemodel:1%:10%:100%:0%", "markov4:2%:20%:30%:60%:1%", "ber:1e-6"] {
            assert_eq!(text.parse::<LossModel>().unwrap().to_string(), text);
        }
        for text in ["gilbert", "gilbert:0", "gilbert:0ms", "markov4:1%:0:0:0:0", "ber:2", "rayleigh", "random:1"] {
            assert!(text.parse::<LossModel>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_same_seed_loses_the_same_packets() {
        let run = |seed| {
            let mut p = LossProcess::new(LossModel::Random, Probability::percent(50.0), seed);
            (0..64).map(|i| p.is_lost(Time::from_nanos(i), 100)).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
