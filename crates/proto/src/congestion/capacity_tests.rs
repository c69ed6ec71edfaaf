use super::*;
use crate::units::Bandwidth;

const DATAGRAM: u64 = 1000;
const RTT: Duration = Duration::from_millis(20);

/// An acknowledgement at a time, after so many packets were sent and so many arrived.
fn ack(ms: u64, sent: u64, acked: u64) -> AckEvent {
    let now = Time::from_millis(ms);
    AckEvent {
        now,
        acked_bytes: DATAGRAM,
        acked_packets: 1,
        ce_packets: 0,
        rtt: Some(RTT),
        largest_sent_at: Time::from_millis(ms - 20),
        smoothed_rtt: RTT,
        min_rtt: RTT,
        delivery_rate: Bandwidth::from_mbit(1.0),
        sent_rate: Bandwidth::from_mbit(1.0),
        flight_loss: 0.0,
        loss_burst: 0.0,
        sample_interval: RTT,
        is_app_limited: false,
        in_flight: DATAGRAM,
        total_acked: acked * DATAGRAM,
        total_lost: 0,
        newest_offset: sent * DATAGRAM,
        arrived: now,
    }
}

/// Loss of each epoch of acknowledgements at a time, after so many packets sent, of which so many arrived.
fn losses(acks: impl IntoIterator<Item = (u64, u64, u64)>) -> Vec<f64> {
    let mut capacity = Capacity::default();
    let epochs = acks.into_iter().filter_map(|(ms, sent, acked)| capacity.on_ack(&ack(ms, sent, acked), DATAGRAM as f64, false, false));
    epochs.map(|epoch| epoch.loss).collect()
}

/// A packet every ms, each acknowledged.
fn steady(ms: std::ops::Range<u64>, sent: u64, acked: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    ms.clone().map(move |t| (t, sent + t - ms.start, acked + t - ms.start))
}

#[test]
fn what_an_outage_swallowed_is_in_no_epoch() {
    // 200 packets, then 60 that nobody received, then 200 more.
    let all = losses(steady(100..300, 0, 0).chain(steady(5300..5500, 260, 200)));
    assert!(all.len() > 15 && all.iter().all(|loss| *loss == 0.0), "{all:?}");
}

#[test]
fn a_flow_that_is_acknowledged_seldom_is_measured_all_the_same() {
    // Every 200 ms, ten times the RTT, eight packets of which two arrive.
    let all = losses((1..50).map(|i| (i * 200, 8 * i, 2 * i)));
    assert!(all.len() > 10 && all.iter().skip(1).all(|loss| (*loss - 0.75).abs() < 0.01), "{all:?}");
    // And a lost return path is no outage: everything had arrived.
    let all = losses(steady(100..300, 0, 0).chain(steady(900..1100, 600, 540)));
    assert!(all.iter().any(|loss| *loss > 0.05), "{all:?}");
}
