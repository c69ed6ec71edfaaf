//! What became of the messages of a ping, and the figures of it.

use serde::Serialize;

/// One message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Second at which it was due, after the start.
    pub due: f64,
    /// Milliseconds from then to its answer.
    pub rtt_ms: Option<f64>,
}

/// What counts as an answer: within so many ms; later is as good as never.
pub struct Samples {
    /// In the order of sending.
    pub all: Vec<Sample>,
    /// Longest wait in ms.
    pub wait_ms: f64,
}

/// Figures over the answers that came in time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Messages sent.
    pub sent: usize,
    /// Answers in time.
    pub received: usize,
    /// Answers that came too late; they count as lost.
    pub late: usize,
    /// Share of messages without an answer in time.
    pub residual_loss: f64,
    /// In ms, as everything below; 0 without answers.
    pub min_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation.
    pub deviation_ms: f64,
    /// Mean difference between an answer's time and that of the answer before.
    pub jitter_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// Percentiles.
    pub p90_ms: f64,
    /// See above.
    pub p95_ms: f64,
    /// See above.
    pub p99_ms: f64,
    /// See above.
    pub p999_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// The messages of one line: ten.
pub const TEN: usize = 10;

/// Mean of ten consecutive messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ten {
    /// Number of the first.
    pub first: usize,
    /// Messages of them that were sent.
    pub sent: usize,
    /// Answers in time.
    pub received: usize,
    /// Mean of these.
    pub mean_ms: Option<f64>,
}

impl Samples {
    /// Times of answers that came in time, with the number of the message.
    pub fn answers(&self) -> impl Iterator<Item = (usize, f64)> {
        self.all.iter().enumerate().filter_map(|(i, s)| s.rtt_ms.filter(|t| *t <= self.wait_ms).map(|t| (i, t)))
    }

    /// All figures.
    pub fn summary(&self) -> Summary {
        let times: Vec<f64> = self.answers().map(|(_, t)| t).collect();
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let n = times.len() as f64;
        let mean = |sum: f64, n: f64| if n > 0.0 { sum / n } else { 0.0 };
        let mean_ms = mean(times.iter().sum(), n);
        let variance = mean(times.iter().map(|t| (t - mean_ms).powi(2)).sum(), n);
        let steps: f64 = times.windows(2).map(|w| (w[1] - w[0]).abs()).sum();
        Summary {
            sent: self.all.len(),
            received: times.len(),
            late: self.all.iter().filter(|s| s.rtt_ms.is_some_and(|t| t > self.wait_ms)).count(),
            residual_loss: if self.all.is_empty() { 0.0 } else { 1.0 - n / self.all.len() as f64 },
            min_ms: sorted.first().copied().unwrap_or(0.0),
            mean_ms,
            deviation_ms: variance.sqrt(),
            jitter_ms: mean(steps, n - 1.0),
            p50_ms: percentile(&sorted, 0.5),
            p90_ms: percentile(&sorted, 0.9),
            p95_ms: percentile(&sorted, 0.95),
            p99_ms: percentile(&sorted, 0.99),
            p999_ms: percentile(&sorted, 0.999),
            max_ms: sorted.last().copied().unwrap_or(0.0),
        }
    }

    /// Means of each ten consecutive messages.
    pub fn tens(&self) -> Vec<Ten> {
        let ten = |(i, samples): (usize, &[Sample])| {
            let times: Vec<f64> = samples.iter().filter_map(|s| s.rtt_ms).filter(|t| *t <= self.wait_ms).collect();
            let mean_ms = (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64);
            Ten { first: i * TEN, sent: samples.len(), received: times.len(), mean_ms }
        };
        self.all.chunks(TEN).enumerate().map(ten).collect()
    }
}

/// The smallest time that is not exceeded by a share `p` of all (nearest rank).
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// The first message of a fresh connection, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct First {
    /// From nothing to a connection that takes data.
    pub connect_ms: f64,
    /// From there to the answer of the first message.
    pub answer_ms: f64,
}

/// Mean of several first messages.
pub fn mean_first(all: &[First]) -> First {
    let n = (all.len() as f64).max(1.0);
    First { connect_ms: all.iter().map(|f| f.connect_ms).sum::<f64>() / n, answer_ms: all.iter().map(|f| f.answer_ms).sum::<f64>() / n }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times: &[Option<f64>]) -> Samples {
        let all = times.iter().enumerate().map(|(i, t)| Sample { due: i as f64 * 0.1, rtt_ms: *t }).collect();
        Samples { all, wait_ms: 100.0 }
    }

    #[test]
    fn late_answers_are_lost_and_in_no_mean() {
        let s = samples(&[Some(10.0), Some(30.0), None, Some(500.0)]);
        let sum = s.summary();
        assert_eq!((sum.sent, sum.received, sum.late, sum.residual_loss), (4, 2, 1, 0.5));
        assert_eq!((sum.min_ms, sum.mean_ms, sum.max_ms, sum.deviation_ms, sum.jitter_ms), (10.0, 20.0, 30.0, 10.0, 20.0));
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let times: Vec<_> = (1..=1000).rev().map(|i| Some(f64::from(i) / 20.0)).collect();
        let sum = samples(&times).summary();
        assert_eq!((sum.p50_ms, sum.p90_ms, sum.p95_ms, sum.p99_ms, sum.p999_ms), (25.0, 45.0, 47.5, 49.5, 49.95));
    }

    #[test]
    fn nothing_sent_and_nothing_answered_have_figures_too() {
        assert_eq!(samples(&[]).summary().residual_loss, 0.0);
        let sum = samples(&[None]).summary();
        assert_eq!((sum.residual_loss, sum.p50_ms, sum.jitter_ms), (1.0, 0.0, 0.0));
    }

    #[test]
    fn tens_have_means_of_what_came() {
        let mut times = vec![Some(10.0); 25];
        times[3] = None;
        times[13] = Some(20.0);
        let tens = samples(&times).tens();
        assert_eq!(tens.len(), 3);
        assert_eq!(tens[0], Ten { first: 0, sent: 10, received: 9, mean_ms: Some(10.0) });
        assert_eq!(tens[1].mean_ms, Some(11.0));
        assert_eq!((tens[2].sent, tens[2].first), (5, 20));
    }
}
