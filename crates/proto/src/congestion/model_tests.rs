//! What the virtual bottleneck of `tests/congestion.rs` cannot show: senders that are slower than their path.

use super::super::{AckEvent, Controller, SentEvent};
use super::{Model, State, TEST_GAIN};
use crate::units::{Bandwidth, Duration, Time};

const DATAGRAM: u64 = 1472;
const RTT: Duration = Duration::from_micros(50);

/// A host that wakes every `gap` and sends `burst` packets, which are acknowledged one RTT later, before it wakes again.
fn wake_and_send(model: &mut Model, gap: Duration, burst: u64, seconds: f64) {
    let mut sent = 0;
    let mut now = Time::ZERO;
    let mut arrived = now;
    while now < Time::ZERO + Duration::from_secs_f64(seconds) {
        now += gap;
        for i in 1..=burst {
            let bytes = DATAGRAM;
            sent += bytes;
            model.on_sent(&SentEvent { now, bytes, in_flight: i * bytes, is_app_limited: false, sent_offset: sent });
        }
        let rate = Bandwidth::from_bytes_per_sec((burst * DATAGRAM) as f64 / gap.as_secs_f64());
        arrived = (now + RTT).max(arrived);
        model.on_ack(&AckEvent {
            now: arrived,
            acked_bytes: burst * DATAGRAM,
            acked_packets: burst,
            ce_packets: 0,
            rtt: Some(RTT),
            largest_sent_at: now,
            smoothed_rtt: RTT,
            min_rtt: RTT,
            delivery_rate: rate,
            sent_rate: rate,
            flight_loss: 0.0,
            loss_burst: 0.0,
            sample_interval: gap,
            is_app_limited: false,
            in_flight: 0,
            total_acked: sent,
            total_lost: 0,
            newest_offset: sent,
            arrived,
        });
    }
}

/// Nothing is in flight between two wake-ups. Were that idleness, no epoch would ever end.
#[test]
fn a_path_shorter_than_a_wake_up_is_measured() {
    let mut model = Model::new(DATAGRAM, RTT, Time::ZERO);
    wake_and_send(&mut model, Duration::from_micros(500), 16, 0.5);
    let rate = 16.0 * DATAGRAM as f64 / 500e-6;
    assert!(model.round > 20, "{} rounds in half a second", model.round);
    assert!(model.latest_sent > rate * 0.9 && model.latest_sent < rate * 1.1, "{:.0} of {rate:.0} bytes/s", model.latest_sent);
}

/// It sends all it can, and that is no refusal by the path: it must be ready when the host is faster again.
#[test]
fn a_slow_host_is_no_refusal() {
    let mut model = Model::new(DATAGRAM, RTT, Time::ZERO);
    wake_and_send(&mut model, Duration::from_micros(500), 16, 1.0);
    assert!(!model.is_refused && model.round >= model.hold_until, "{model:?}");
}

/// A round lasts until something was measured in it: not one per acknowledgement.
#[test]
fn a_round_has_an_epoch() {
    let mut model = Model::new(DATAGRAM, RTT, Time::ZERO);
    wake_and_send(&mut model, Duration::from_micros(500), 16, 0.5);
    assert!(model.round <= 500 / 8 + 1, "{} rounds of 8 ms", model.round);
}

/// Where nothing was measured at full rate the path is tested at half the estimate; where something was, just below it.
#[test]
fn a_test_goes_at_half_of_what_is_known_where_nothing_was_measured() {
    let mut model = Model::new(DATAGRAM, Duration::from_millis(20), Time::ZERO);
    model.capacity.on_sample(1e6, false);
    model.enter(State::Test, Time::ZERO);
    model.update();
    assert!((model.pacing / (TEST_GAIN * 0.5e6) - 1.0).abs() < 1e-9, "{}", model.pacing);
    model.capacity.on_delivered(0.9e6);
    model.capacity.on_delivered(0.8e6);
    model.update();
    assert!((model.pacing / (TEST_GAIN * 0.8e6) - 1.0).abs() < 1e-9, "{}", model.pacing);
}
