//! The distribution from which `holdout` draws. All that decides the conditions of a run stands in this file.
//!
//! Every quantity has a random stream of its own, named by the text in `about("...")`: a change of one leaves the others as they were.
//! `about("x").chance(0.2)` is true in 20 % of the draws. Ranges are log-uniform where a factor is what matters, else uniform.
//! The kinds differ in what runs, not in the links: draw 17 of one seed has the same links for all of them.
//!
//! Left out, because a sender cannot do anything about them: corrupted and doubled packets, links slower than 0.5 Mbit/s, routes longer
//! than 250 ms one way, changes of the delay.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::{Draw, Kind};
use crate::scenario::Sender;
use crate::sim::QuicCongestion;

/// Rate of the narrowest link, Mbit/s, log-uniform; no other link is faster than the upper end.
pub const RATE_MBIT: (f64, f64) = (0.5, 400.0);
/// How much faster each other link of a chain is, log-uniform; half of them are as fast as the narrowest.
const WIDER: (f64, f64) = (1.0, 4.0);
/// Propagation delay of the whole route, one way, ms, log-uniform; a chain parts it at random.
pub const ONE_WAY_MS: (f64, f64) = (1.0, 250.0);
/// Links in a row, joined by nodes that recode, each number with its share.
pub const HOPS: [(usize, f64); 5] = [(1, 0.5), (2, 0.2), (3, 0.1), (4, 0.1), (5, 0.1)];

/// Share of the draws that lose packets at random at all (queues drop in all of them).
const LOSSY: f64 = 0.8;
/// Loss, %: half of them log-uniform in the first range, half uniform in the second.
pub const LOSS_LOW_PERCENT: (f64, f64) = (0.05, 5.0);
/// See [`LOSS_LOW_PERCENT`].
pub const LOSS_HIGH_PERCENT: (f64, f64) = (5.0, 35.0);
/// In a chain: share in which one link alone loses; in the others all do, each as much as drawn.
const LOSS_ON_ONE_LINK: f64 = 0.5;
/// Share in which acknowledgements are lost at a rate of their own (none, or drawn anew), where all links lose.
const OTHER_LOSS_BACK: f64 = 0.3;
/// Share in which losses are spread evenly, in bursts of so many packets, in bursts of so much time. Bursts of packets are not for
/// sparse messages: there a burst would last for seconds (P25), so that they get bursts in time.
const BURSTS: [f64; 3] = [0.5, 0.25, 0.25];
/// Mean burst in packets, log-uniform.
const BURST_PACKETS: (f64, f64) = (2.0, 30.0);
/// Mean burst in ms, log-uniform.
const BURST_MS: (f64, f64) = (1.0, 100.0);
/// Share in which losses happen before the bottleneck and use nothing of it.
const LOSS_BEFORE: f64 = 0.25;

/// Share with jitter, on one link.
const JITTERY: f64 = 0.5;
/// Its size, ms, log-uniform; cut where the earliest packet would need no time at all (uniform: delay; normal: delay / 4; Pareto: 1.7 x delay).
pub const JITTER_MS: (f64, f64) = (0.1, 40.0);
/// Share of that in which jitter reorders; in the others each packet waits for the one before it.
const JITTER_REORDERS: f64 = 0.5;
/// Share in which some packets are held back besides, so that others overtake them.
const REORDERED: f64 = 0.15;
/// How many of them, %, log-uniform.
const REORDER_PERCENT: (f64, f64) = (0.1, 5.0);
/// For how long at most, ms, log-uniform.
const REORDER_MS: (f64, f64) = (1.0, 40.0);

/// Share with fq_codel and with PIE at every link, half of each with ECN; the others are drop-tail.
const AQM: [f64; 2] = [0.12, 0.08];
/// Limit of a drop-tail queue in bandwidth-delay products of the route, log-uniform (the laboratory keeps room for 16 packets).
pub const QUEUE_BDP: (f64, f64) = (0.1, 5.0);
/// Largest IP packet with its share; what is left is uniform in [`MTU_OTHER`].
const MTU: [(u32, f64); 4] = [(1500, 0.6), (1280, 0.1), (1400, 0.1), (9000, 0.05)];
/// See [`MTU`].
const MTU_OTHER: (f64, f64) = (1000.0, 1500.0);
/// Share with IPv6.
const IP6: f64 = 0.1;
/// Share with a slower return path, on routes of one link, and its rate over the rate there, log-uniform.
const ASYMMETRIC: (f64, (f64, f64)) = (0.2, (0.1, 1.0));

/// Share with one outage.
const OUTAGES: f64 = 0.1;
/// How long, s, log-uniform; at most a fifth of what is counted.
const OUTAGE_S: (f64, f64) = (0.1, 5.0);
/// Share in which the rate of all links changes in mid-run, once or (a third of them) twice.
const CHANGES: f64 = 0.2;
/// The new rate over that of the narrowest link before, log-uniform, within [`RATE_MBIT`].
const CHANGE: (f64, f64) = (0.25, 4.0);

/// What is not counted: P24, max(5 s, 12 round trips).
const WARMUP: (f64, f64) = (5.0, 12.0);
/// What is counted: P24, max(25 s, 60 round trips), cut to what [`MOST_PACKETS`] allow, but not below max(10 s, 20 round trips).
const COUNTED: (f64, f64) = (25.0, 60.0);
/// See [`COUNTED`].
const COUNTED_AT_LEAST: (f64, f64) = (10.0, 20.0);
/// Packets of the counted time at the rate of the narrowest link, times links: what bounds the cost of a run.
const MOST_PACKETS: f64 = 700_000.0;

/// btp: lifetime of a message in round trips, log-uniform, and ms besides.
const LIFETIME: ((f64, f64), f64) = ((1.2, 6.0), 50.0);
/// Messages: bytes of each, log-uniform, and messages per second, log-uniform.
const MESSAGE_BYTES: (f64, f64) = (64.0, 4000.0);
/// See [`MESSAGE_BYTES`].
const MESSAGES_PER_S: (f64, f64) = (2.0, 200.0);
/// Messages take at most this share of what the narrowest link delivers at its slowest.
const MESSAGE_LOAD: f64 = 0.3;

/// Beside: the other sender, each with its share. Random loss is of the low range only: at more, loss-based control has nothing to share.
const OTHERS: [(Sender, f64); 2] = [(Sender::Quic(QuicCongestion::Cubic), 0.5), (Sender::Quic(QuicCongestion::Bbr), 0.5)];

/// What was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Which draw.
    pub draw: Draw,
    /// Mbit/s of each link.
    pub rates_mbit: Vec<f64>,
    /// One-way delay of each link, ms.
    pub delays_ms: Vec<f64>,
    /// What is lost.
    pub loss: Option<Loss>,
    /// On one link.
    pub jitter: Option<Jitter>,
    /// Share in % and ms.
    pub reorder: Option<(f64, f64)>,
    /// Of every link.
    pub queue: QueueKind,
    /// IP bytes.
    pub mtu: u32,
    /// 4 or 6.
    pub ip: u8,
    /// Mbit/s of the return path, if slower.
    pub back_mbit: Option<f64>,
    /// When, s, and how long, s.
    pub outage: Option<(f64, f64)>,
    /// When, s, and the new rate of all links, Mbit/s.
    pub changes: Vec<(f64, f64)>,
    /// Not counted, s.
    pub warmup_s: f64,
    /// Whole run, s.
    pub seconds: f64,
    /// btp: ms.
    pub lifetime_ms: f64,
    /// Messages: per second, bytes.
    pub messages: (f64, u32),
    /// Beside: the other sender.
    pub other: Sender,
    /// Of the run.
    pub run_seed: u64,
}

/// Losses of the links.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// Mean.
    pub percent: f64,
    /// Of the return path, if not the same.
    pub back_percent: Option<f64>,
    /// The link that loses, from 0; all of them if none.
    pub link: Option<usize>,
    /// How it is spread.
    pub burst: Burst,
    /// Before the bottleneck.
    pub before: bool,
}

/// Length of a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Burst {
    /// Each packet alone.
    None,
    /// Mean in packets.
    Packets(f64),
    /// Mean in ms.
    Ms(f64),
}

/// Jitter of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct Jitter {
    /// Which, from 0.
    pub link: usize,
    /// Size.
    pub ms: f64,
    /// `uniform`, `normal`, `pareto`.
    pub shape: &'static str,
    /// Whether packets overtake.
    pub reorders: bool,
}

/// Kind and length of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueKind {
    /// Drop-tail, BDP.
    DropTail(f64),
    /// Active management as the command line writes it.
    Aqm(&'static str),
}

impl Conditions {
    /// Draws.
    pub fn draw(draw: Draw) -> Self {
        let about = |quantity: &str| Stream::new(draw, quantity);
        let hops = about("hops").weighted(&HOPS);
        let mut pick = about("narrowest and single links");
        let (narrowest, lossy, jittery) = (pick.below(hops), pick.below(hops), pick.below(hops));

        let rate = three_digits(about("rate").log_uniform(RATE_MBIT));
        let mut wider = about("rates of the other links");
        let rates_mbit: Vec<f64> = (0..hops)
            .map(|link| match (wider.chance(0.5), wider.log_uniform(WIDER)) {
                (true, factor) if link != narrowest => three_digits((rate * factor).min(RATE_MBIT.1)),
                _ => rate,
            })
            .collect();
        let one_way = about("delay").log_uniform(ONE_WAY_MS);
        let mut parts = about("parts of the delay");
        let parts: Vec<f64> = (0..hops).map(|_| parts.uniform((0.2, 1.0))).collect();
        let delays_ms: Vec<f64> = parts.iter().map(|part| three_digits(one_way * part / parts.iter().sum::<f64>())).collect();
        let rtt = 2.0 * delays_ms.iter().sum::<f64>() / 1e3;

        let loss = about("loss or none").chance(LOSSY).then(|| {
            let percent = |mut of: Stream| match of.chance(0.5) || draw.kind == Kind::Beside {
                true => three_digits(of.log_uniform(LOSS_LOW_PERCENT)),
                false => three_digits(of.uniform(LOSS_HIGH_PERCENT)),
            };
            let link = (hops > 1 && about("loss on one link").chance(LOSS_ON_ONE_LINK)).then_some(lossy);
            let mut back = about("loss back");
            let other = link.is_none() && back.chance(OTHER_LOSS_BACK);
            let back_percent = other.then(|| if back.chance(0.5) { 0.0 } else { percent(about("how much is lost back")) });
            let spread = about("spread of losses").weighted(&[(0, BURSTS[0]), (1, BURSTS[1]), (2, BURSTS[2])]);
            let ms = three_digits(about("burst in time").log_uniform(BURST_MS));
            let burst = match spread {
                0 => Burst::None,
                1 if draw.kind != Kind::Messages => Burst::Packets(three_digits(about("burst in packets").log_uniform(BURST_PACKETS))),
                _ => Burst::Ms(ms),
            };
            Loss { percent: percent(about("loss")), back_percent, link, burst, before: about("loss before").chance(LOSS_BEFORE) }
        });

        let jitter = about("jitter or none").chance(JITTERY).then(|| {
            let shape = about("shape of jitter").weighted(&[("uniform", 1.0), ("normal", 1.0), ("pareto", 1.0)]);
            let most = delays_ms[jittery]
                * if shape == "normal" {
                    0.25
                } else if shape == "pareto" {
                    1.7
                } else {
                    1.0
                };
            let ms = three_digits(about("jitter").log_uniform(JITTER_MS).min(most));
            Jitter { link: jittery, ms, shape, reorders: about("jitter reorders").chance(JITTER_REORDERS) }
        });
        let mut held = about("reordering");
        let reorder =
            held.chance(REORDERED).then(|| (three_digits(held.log_uniform(REORDER_PERCENT)), three_digits(held.log_uniform(REORDER_MS))));

        let ecn = about("ECN").chance(0.5);
        let queue = match about("queue").weighted(&[(1, AQM[0]), (2, AQM[1]), (0, 1.0 - AQM[0] - AQM[1])]) {
            1 => QueueKind::Aqm(if ecn { "fq_codel:ecn" } else { "fq_codel" }),
            2 => QueueKind::Aqm(if ecn { "pie:ecn" } else { "pie" }),
            _ => QueueKind::DropTail(three_digits(about("length of the queue").log_uniform(QUEUE_BDP))),
        };
        let other_mtu = about("other MTU").uniform(MTU_OTHER) as u32;
        let shares: f64 = MTU.iter().map(|(_, share)| share).sum();
        let sizes: Vec<(u32, f64)> = MTU.into_iter().chain([(other_mtu, 1.0 - shares)]).collect();
        let mtu = about("MTU").weighted(&sizes);
        let ip = if about("IP").chance(IP6) { 6 } else { 4 };
        let mut back = about("way back");
        let slower = back.chance(ASYMMETRIC.0) && hops == 1;
        let back_mbit = slower.then(|| three_digits(rate * back.log_uniform(ASYMMETRIC.1)));

        let packets_per_s = rate * 1e6 / 8.0 / f64::from(mtu) * hops as f64;
        let of_rtt = |(seconds, rtts): (f64, f64)| seconds.max(rtts * rtt);
        let counted = of_rtt(COUNTED).min(MOST_PACKETS / packets_per_s).max(of_rtt(COUNTED_AT_LEAST));
        let (warmup_s, counted) = (whole_ms(of_rtt(WARMUP)), whole_ms(counted));
        let moment = |of: &mut Stream| whole_ms(warmup_s + counted * of.uniform((0.1, 0.7)));
        let mut out = about("outage");
        let outage = out.chance(OUTAGES).then(|| {
            let at = moment(&mut out);
            (at, whole_ms(out.log_uniform(OUTAGE_S).min(counted / 5.0)))
        });
        let mut change = about("changes of the rate");
        let times = if change.chance(CHANGES) { 1 + usize::from(change.chance(1.0 / 3.0)) } else { 0 };
        let mut changes: Vec<(f64, f64)> = (0..times)
            .map(|_| (moment(&mut change), three_digits((rate * change.log_uniform(CHANGE)).clamp(RATE_MBIT.0, RATE_MBIT.1))))
            .collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));

        let lifetime_ms = three_digits(1e3 * rtt * about("lifetime").log_uniform(LIFETIME.0) + LIFETIME.1);
        let slowest = changes.iter().map(|change| change.1).chain([rate]).chain(back_mbit).fold(f64::INFINITY, f64::min);
        let lost = loss.as_ref().map_or(0.0, |loss| loss.percent.max(loss.back_percent.unwrap_or(0.0)) / 100.0);
        let bytes_per_s = MESSAGE_LOAD * slowest * 1e6 / 8.0 * (1.0 - lost);
        // At least the slowest pace has to fit.
        let size = about("size of messages").log_uniform(MESSAGE_BYTES).min(bytes_per_s / MESSAGES_PER_S.0).max(MESSAGE_BYTES.0) as u32;
        let pace = about("pace of messages").log_uniform(MESSAGES_PER_S).min(bytes_per_s / f64::from(size));

        Self {
            draw,
            rates_mbit,
            delays_ms,
            loss,
            jitter,
            reorder,
            queue,
            mtu,
            ip,
            back_mbit,
            outage,
            changes,
            warmup_s,
            seconds: whole_ms(warmup_s + counted),
            lifetime_ms,
            messages: (three_digits(pace), size),
            other: about("other sender").weighted(&OTHERS),
            run_seed: about("seed of the run").below(1_000_000) as u64,
        }
    }
}

/// Short commands are read by people; a third digit is finer than anything that matters here.
fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn whole_ms(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// The random numbers of one quantity of one draw.
struct Stream(ChaCha8Rng);

impl Stream {
    /// The kind is no part of it: all kinds have the same links.
    fn new(draw: Draw, quantity: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&draw.seed.to_le_bytes()).update(&draw.number.to_le_bytes()).update(quantity.as_bytes());
        Self(ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()))
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    fn uniform(&mut self, (from, to): (f64, f64)) -> f64 {
        from + (to - from) * self.unit()
    }

    fn log_uniform(&mut self, (from, to): (f64, f64)) -> f64 {
        from * (to / from).powf(self.unit())
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// One of `choices`, by their weights.
    fn weighted<T: Copy>(&mut self, choices: &[(T, f64)]) -> T {
        let mut at = self.unit() * choices.iter().map(|(_, weight)| weight).sum::<f64>();
        for &(choice, weight) in choices {
            if at < weight {
                return choice;
            }
            at -= weight;
        }
        choices[choices.len() - 1].0
    }
}

#[cfg(test)]
#[path = "distribution_tests.rs"]
mod tests;
