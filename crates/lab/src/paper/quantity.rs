//! Quantities that are read off the report of a run.

use crate::report::{Report, round};

/// A number of a run, and how a table writes it.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    /// Name in the heads of tables and at axes.
    pub name: &'static str,
    /// Its unit; empty if it is a ratio.
    pub unit: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// Less is better.
    pub is_cost: bool,
    /// Reads it off a report; none where the run has no such number.
    pub of: fn(&Report) -> Option<f64>,
}

impl Quantity {
    /// `goodput (Mbit/s)`.
    pub fn label(&self) -> String {
        if self.unit.is_empty() { self.name.to_owned() } else { format!("{} ({})", self.name, self.unit) }
    }
}

/// Bits of a payload of 1000 bytes.
const PACKET_BITS: f64 = 8_000.0;
/// Bitrate of the video in figure 004-video, Mbit/s.
pub const VIDEO_MBIT: f64 = 8.0;

pub(super) static GOODPUT: Quantity =
    Quantity { name: "goodput", unit: "Mbit/s", digits: 2, is_cost: false, of: |report| Some(report.goodput_mbit) };
pub(super) static SHARE: Quantity =
    Quantity { name: "share of the limit", unit: "%", digits: 1, is_cost: false, of: |report| report.share.map(|share| share * 100.0) };
pub(super) static RELIABILITY: Quantity = Quantity {
    name: "reliability: received over sent",
    unit: "",
    digits: 4,
    is_cost: false,
    of: |report| report.residual_loss.map(|lost| 1.0 - lost),
};
pub(super) static LOST: Quantity =
    Quantity { name: "messages lost from end to end", unit: "", digits: 4, is_cost: true, of: |report| report.residual_loss };
pub(super) static RTT_MEAN: Quantity =
    Quantity { name: "mean round trip", unit: "ms", digits: 2, is_cost: true, of: |report| report.message_rtt_ms.map(|t| t.mean) };
pub(super) static RTT_P99: Quantity = Quantity {
    name: "99th percentile of round trips",
    unit: "ms",
    digits: 2,
    is_cost: true,
    of: |report| report.message_rtt_ms.map(|t| t.p99),
};
pub(super) static TENS_LEAST: Quantity = Quantity {
    name: "lowest mean of ten round trips",
    unit: "ms",
    digits: 2,
    is_cost: true,
    of: |report| report.message_rtt_ms_by_ten.iter().copied().reduce(f64::min),
};
pub(super) static TENS_MOST: Quantity = Quantity {
    name: "highest mean of ten round trips",
    unit: "ms",
    digits: 2,
    is_cost: true,
    of: |report| report.message_rtt_ms_by_ten.iter().copied().reduce(f64::max),
};
pub(super) static FIRST_RTT: Quantity =
    Quantity { name: "round trip of the first message", unit: "ms", digits: 2, is_cost: true, of: |report| report.first_message_rtt_ms };
pub(super) static JITTER: Quantity = Quantity {
    name: "99th percentile of the one-way time above its median",
    unit: "ms",
    digits: 2,
    is_cost: true,
    of: |report| report.message_one_way_ms.map(|t| t.p99 - t.p50),
};
pub(super) static TRANSFER_RTTS: Quantity = Quantity {
    name: "first packet to last acknowledgement",
    unit: "round trips",
    digits: 2,
    is_cost: true,
    of: |report| report.transfer_s.map(|s| s * 1e3 / report.scenario.base_rtt_ms),
};
pub(super) static BACK: Quantity = Quantity {
    name: "bytes back per byte",
    unit: "",
    digits: 4,
    is_cost: true,
    of: |report| report.reverse_wire_per_byte.first().copied().flatten(),
};
pub(super) static WIRE: Quantity = Quantity {
    name: "bytes sent per byte read",
    unit: "",
    digits: 3,
    is_cost: true,
    of: |report| report.wire_per_byte.iter().flatten().copied().reduce(f64::max),
};
pub(super) static JAIN: Quantity = Quantity { name: "Jain's index", unit: "", digits: 3, is_cost: false, of: |report| report.jain };
pub(super) static RAMP: Quantity = Quantity {
    name: "start to the first second with 90 % of the limit",
    unit: "s",
    digits: 0,
    is_cost: true,
    of: |report| {
        let limit = report.nominal_limit_mbit?;
        report.goodput_mbit_by_second.iter().position(|mbit| *mbit >= 0.9 * limit).map(|second| second as f64 + 1.0)
    },
};
pub(super) static PACKETS: Quantity = Quantity {
    name: "payloads of 1000 bytes",
    unit: "per second",
    digits: 0,
    is_cost: false,
    of: |report| Some(report.goodput_mbit * 1e6 / PACKET_BITS),
};
pub(super) static BLOCK: Quantity = Quantity {
    name: "mean completion time of a block",
    unit: "ms",
    digits: 1,
    is_cost: true,
    of: |report| report.message_one_way_ms.map(|t| t.mean),
};
pub(super) static STALLED: Quantity = Quantity {
    name: "seconds in which the buffer runs empty",
    unit: "s",
    digits: 0,
    is_cost: true,
    of: |report| Some(buffer(report, VIDEO_MBIT).iter().filter(|seconds| **seconds <= 0.0).count() as f64),
};
pub(super) static BUFFERED: Quantity = Quantity {
    name: "video in the buffer at the end",
    unit: "s",
    digits: 1,
    is_cost: false,
    of: |report| buffer(report, VIDEO_MBIT).last().copied(),
};

/// Seconds of video in the buffer at the end of each second. It plays from the second after its first byte; an empty buffer stops it.
pub(super) fn buffer(report: &Report, mbit: f64) -> Vec<f64> {
    let mut content = 0.0f64;
    let mut plays = false;
    let after = |&arrived: &f64| {
        let wanted = if plays { mbit } else { 0.0 };
        plays |= arrived > 0.0;
        content = (content + arrived - wanted).max(0.0);
        round(content / mbit, 3)
    };
    report.goodput_mbit_by_second.iter().map(after).collect()
}

/// The number in the value of an axis: `5%` is 5, `ber:1e-6` and `rate:40mbit` what follows the colon, `transfer:10KB` 10,000.
pub(super) fn number_of(value: &str) -> Option<f64> {
    let text = value.split_once(':').map_or(value, |(_, rest)| rest);
    let ends = (1..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
    let (number, unit) = ends.filter_map(|end| Some((text[..end].parse::<f64>().ok()?, &text[end..]))).next()?;
    let scale = match unit {
        "KB" => 1e3,
        "MB" => 1e6,
        _ => 1.0,
    };
    Some(number * scale).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_axes_are_numbers_where_they_have_one() {
        let read = ["5%", "ber:1e-6", "rate:40mbit", "10ms", "100", "model", "transfer:10KB"].map(number_of);
        assert_eq!(read, [Some(5.0), Some(1e-6), Some(40.0), Some(10.0), Some(100.0), None, Some(10_000.0)]);
    }
}
