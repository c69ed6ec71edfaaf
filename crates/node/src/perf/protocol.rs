//! What the two ends of a test tell each other, as records (see `transfer::records` for their framing).

use serde::{Deserialize, Serialize};

/// Tag of the control stream.
pub const CONTROL_TAG: u64 = 0x70657266;
/// Tag of data flows.
pub const DATA_TAG: u64 = 0x64617461;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Version of this protocol: 1.
    pub version: u32,
    /// `brtp` or `btp`.
    pub mode: String,
    /// Seconds to send.
    pub seconds: f64,
    /// Seconds between reports.
    pub interval: f64,
    /// Flows.
    pub parallel: u16,
    /// The server sends.
    pub reverse: bool,
    /// Offered rate of all flows together, bits per second.
    pub rate: Option<f64>,
    /// Bytes per message; none: a byte stream.
    pub length: Option<usize>,
    /// Lifetime of messages in ms, btp only.
    pub lifetime_ms: Option<f64>,
}

impl Request {
    /// Refuses what makes no sense, in words.
    pub fn check(&self) -> Result<(), String> {
        let fail = |text: &str| Err(text.to_owned());
        if self.version != 1 {
            return Err(format!("version {} of the test protocol is not spoken here", self.version));
        }
        if !(0.1..=86_400.0).contains(&self.seconds) {
            return fail("the time (-t) must lie between 0.1 and 86400 seconds");
        }
        if !(0.1..=3600.0).contains(&self.interval) {
            return fail("the interval (-i) must lie between 0.1 and 3600 seconds");
        }
        if !(1..=128).contains(&self.parallel) {
            return fail("between 1 and 128 flows (-P)");
        }
        if self.length.is_some_and(|l| !(16..=4 << 20).contains(&l)) {
            return fail("the message length (-l) must lie between 16 bytes and 4 MiB");
        }
        if !matches!(self.mode.as_str(), "brtp" | "btp") {
            return Err(format!("unknown mode {:?}", self.mode));
        }
        if self.mode == "btp" && (self.length.is_none() || self.lifetime_ms.is_none()) {
            return fail("btp needs a message length and a lifetime");
        }
        Ok(())
    }
}

/// The sending side's view of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Interval, from 0.
    pub index: u64,
    /// Smoothed RTT at its end, ms.
    pub rtt_ms: f64,
    /// Share of its packets that was lost.
    pub loss: f64,
    /// Share of its coded packets that was repair.
    pub repair_share: f64,
    /// CPU time of the process by wall time, 1 = one core.
    pub cpu: f64,
    /// Messages offered so far.
    pub messages: u64,
    /// Bytes of UDP payload sent so far.
    pub wire_bytes: u64,
}

/// The receiving side's view of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Interval, from 0.
    pub index: u64,
    /// Seconds since the first byte could have come.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// Bytes read by the application in it.
    pub bytes: u64,
    /// Messages in it.
    pub messages: u64,
    /// CPU time of the process by wall time, 1 = one core.
    pub cpu: f64,
    /// Bytes that were not what was sent.
    pub bytes_wrong: u64,
}

/// Totals of the receiving side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Seconds from the start to the last byte.
    pub seconds: f64,
    /// Bytes.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes that were not what was sent.
    pub bytes_wrong: u64,
    /// Peak of the protocol's memory, bytes.
    pub memory_peak_bytes: u64,
}

/// A record in either direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Client: run this test.
    Request(Request),
    /// Server: go.
    Ready,
    /// Server: no, and why.
    Refused {
        /// In words.
        message: String,
    },
    /// The sending side's interval.
    Sent(Sent),
    /// The receiving side's interval.
    Received(Received),
    /// The receiving side is done.
    Total(Total),
    /// The sending side is done; its last view, index of no interval.
    Finished(Sent),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_requests_are_refused_in_words() {
        let good = Request {
            version: 1,
            mode: "brtp".into(),
            seconds: 1.0,
            interval: 1.0,
            parallel: 1,
            reverse: false,
            rate: None,
            length: None,
            lifetime_ms: None,
        };
        assert_eq!(good.check(), Ok(()));
        for bad in [
            Request { version: 2, ..good.clone() },
            Request { seconds: 0.0, ..good.clone() },
            Request { seconds: f64::NAN, ..good.clone() },
            Request { interval: 0.01, ..good.clone() },
            Request { parallel: 0, ..good.clone() },
            Request { length: Some(3), ..good.clone() },
            Request { mode: "tcp".into(), ..good.clone() },
            Request { mode: "btp".into(), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
