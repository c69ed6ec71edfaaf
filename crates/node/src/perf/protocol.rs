//! What the two ends of a measurement tell each other, as records (see `transfer::records` for their framing).

use crate::units::CcName;
use noctule::FarText;
use serde::{Deserialize, Serialize};

/// Version of this protocol.
pub const VERSION: u32 = 3;
/// Tag of the control stream.
pub const CONTROL_TAG: u64 = 0x70657266;
/// Tag of data flows.
pub const DATA_TAG: u64 = 0x64617461;
/// Code of a reset at the end of a test's time, when not everything had arrived: for the receiving side the end, no failure.
pub const TIME_OVER: u64 = 0x74696d65;
/// Tag of flows whose messages are sent back.
pub const PING_TAG: u64 = 0x70696e67;
/// Bytes of a message before the pattern: its number, and when it was sent.
pub const MESSAGE_HEADER: usize = 16;

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Everything arrives, in order.
    Brtp,
    /// Messages with a lifetime: not every one arrives, none is late.
    Btp,
    /// Plain datagrams inside the encrypted link: no coding, no congestion control.
    Transparent,
    /// The kernel's TCP, as a reference: not encrypted, and nothing of noctule in it.
    Tcp,
}

impl Mode {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brtp => "brtp",
            Self::Btp => "btp",
            Self::Transparent => "transparent",
            Self::Tcp => "tcp",
        }
    }
}

/// Which end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client.
    Forward,
    /// The server.
    Reverse,
    /// Each.
    Both,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What carries the data.
    pub mode: Mode,
    /// Seconds to send.
    pub seconds: f64,
    /// Seconds between reports.
    pub interval: f64,
    /// Flows, in each direction that is used.
    pub parallel: u16,
    /// Which end sends.
    pub direction: Direction,
    /// Offered rate of all flows of a direction together, bits per second.
    pub rate: Option<f64>,
    /// Bytes per message; none: a byte stream.
    pub length: Option<usize>,
    /// Lifetime of messages in ms, btp only.
    pub lifetime_ms: Option<f64>,
    /// The client sends the content of a file: it ends when the file does, and hashes are compared.
    pub is_file: bool,
    /// Bytes to send in each direction that is used, instead of sending for a time.
    pub bytes: Option<u64>,
    /// Congestion control for the server to send with.
    pub cc: FarText,
    /// The same for TCP, as the server's kernel names it; none: its default.
    pub tcp_cc: Option<FarText>,
}

impl Request {
    /// It ends when its time is over, not when an amount has arrived.
    pub fn is_timed(&self) -> bool {
        !self.is_file && self.bytes.is_none()
    }

    /// Refuses what makes no sense, in words.
    pub fn check(&self) -> Result<(), String> {
        let fail = |text: &str| Err(text.to_owned());
        if self.version != VERSION {
            return Err(format!(
                "version {} of the test protocol is not spoken here, {VERSION} is: the same release of noctule is needed on both sides",
                self.version
            ));
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
        if self.length.is_some_and(|l| !(MESSAGE_HEADER..=4 << 20).contains(&l)) {
            return fail("the message length (-l) must lie between 16 bytes and 4 MiB");
        }
        if self.rate.is_some_and(|r| !(r.is_finite() && r >= 1.0)) {
            return fail("the rate (-b) must be at least one bit per second");
        }
        if self.bytes == Some(0) {
            return fail("the number of bytes (-n) must be above zero");
        }
        self.cc.raw().parse::<CcName>().map_err(|e| FarText::new(e).to_string())?;
        match self.mode {
            Mode::Brtp => {}
            Mode::Btp if self.length.is_none() || self.lifetime_ms.is_none() => return fail("btp needs a message length and a lifetime"),
            Mode::Transparent if self.length.is_none() => return fail("transparent needs a message length"),
            Mode::Transparent if self.rate.is_none() => {
                return fail("transparent has no congestion control to find a rate: give one with -b");
            }
            Mode::Tcp if self.length.is_some() => return fail("tcp carries a byte stream: messages (-l) belong to the other modes"),
            Mode::Btp | Mode::Transparent | Mode::Tcp => {}
        }
        if self.is_file && (self.length.is_some() || self.parallel > 1 || self.direction != Direction::Forward) {
            return fail("a file (-F) goes from the client over one byte stream: without -l, -P, -r and --bidir");
        }
        Ok(())
    }
}

/// Where a server listens for the TCP connections of one test, and how it knows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpOffer {
    /// TCP port at the server's address.
    pub port: u16,
    /// First bytes of each connection, hexadecimal.
    pub token: FarText,
}

/// The sending side's view of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Interval, from 0.
    pub index: u64,
    /// Smoothed RTT at its end, ms.
    pub rtt_ms: f64,
    /// Share of its packets that was lost; with TCP, of its segments that were sent again.
    pub loss: f64,
    /// Share of its coded packets that was repair.
    pub repair_share: f64,
    /// Share of its coded packets that was sent before anything was known to be missing.
    pub proactive_share: f64,
    /// Coded packets sent so far.
    pub coded_packets: u64,
    /// Of these, repair.
    pub repair_packets: u64,
    /// Of these, sent before anything was known to be missing.
    pub proactive_packets: u64,
    /// Packets of the transport sent so far; with TCP, segments.
    pub sent_packets: u64,
    /// CPU time of the process by wall time, 1 = one core.
    pub cpu: f64,
    /// Messages offered so far.
    pub messages: u64,
    /// Bytes of UDP payload sent so far; 0 with TCP.
    pub wire_bytes: u64,
    /// Packets of the transport lost so far; with TCP, segments sent again.
    pub lost_packets: u64,
    /// BLAKE3 of the file, at its end.
    pub blake3: Option<FarText>,
    /// The time was over before everything had arrived; the rest was given up.
    pub is_cut: bool,
    /// The kernel's congestion control, with TCP.
    pub tcp_cc: Option<FarText>,
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
    /// Messages with a lower number than the highest that came, and that have not come; may fall when one is overtaken.
    pub lost_messages: i64,
    /// RFC 3550 §6.4.1 over the messages, ms.
    pub jitter_ms: f64,
    /// CPU time of the process by wall time, 1 = one core.
    pub cpu: f64,
    /// Bytes that were not what was sent.
    pub bytes_wrong: u64,
    /// Bytes of each flow in it, in the order in which the flows began.
    pub flows: Vec<u64>,
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
    /// Messages that came after one with a higher number.
    pub out_of_order: u64,
    /// RFC 3550 §6.4.1, ms.
    pub jitter_ms: f64,
    /// Bytes that were not what was sent.
    pub bytes_wrong: u64,
    /// Peak of the protocol's memory, bytes.
    pub memory_peak_bytes: u64,
    /// BLAKE3 of what came, if it was a file.
    pub blake3: Option<FarText>,
}

/// A record in either direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Client: run this test.
    Request(Request),
    /// Client: send messages back that come over TCP.
    EchoTcp {
        /// [`VERSION`].
        version: u32,
        /// Bytes of each.
        length: usize,
    },
    /// Server: go.
    Ready {
        /// Connect here first, if it is about TCP.
        tcp: Option<TcpOffer>,
    },
    /// Server: others are before this one, and take at most so long.
    Waiting {
        /// Tests.
        ahead: usize,
        /// Seconds until it is this one's turn.
        seconds: f64,
    },
    /// Server: no, and why.
    Refused {
        /// In words.
        message: FarText,
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
            version: VERSION,
            mode: Mode::Brtp,
            seconds: 1.0,
            interval: 1.0,
            parallel: 1,
            direction: Direction::Forward,
            rate: None,
            length: None,
            lifetime_ms: None,
            is_file: false,
            bytes: None,
            cc: "model".into(),
            tcp_cc: None,
        };
        assert_eq!(good.check(), Ok(()));
        for bad in [
            Request { version: 1, ..good.clone() },
            Request { seconds: 0.0, ..good.clone() },
            Request { seconds: f64::NAN, ..good.clone() },
            Request { interval: 0.01, ..good.clone() },
            Request { parallel: 0, ..good.clone() },
            Request { length: Some(3), ..good.clone() },
            Request { mode: Mode::Btp, ..good.clone() },
            Request { mode: Mode::Transparent, length: Some(1000), ..good.clone() },
            Request { mode: Mode::Tcp, length: Some(1000), ..good.clone() },
            Request { is_file: true, parallel: 2, ..good.clone() },
            Request { rate: Some(0.0), ..good.clone() },
            Request { bytes: Some(0), ..good.clone() },
            Request { cc: "bbr9".into(), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
