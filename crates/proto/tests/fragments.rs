//! Coded packets that are cut in two because the path's MTU fell below them (P5).

mod pair;

use noctule_proto::options::{FlowKind, FlowOptions};
use noctule_proto::units::{Duration, Time};
use pair::{A, B, Conditions, Pair, content};

#[test]
fn what_was_cut_counts_as_received_only_if_both_halves_arrived() {
    for seed in 1..4 {
        let conditions = Conditions { delay: Duration::from_millis(40), loss: 0.15, rate: Some(5e6), ..Conditions::default() };
        let mut p = Pair::new(Default::default(), conditions, seed);
        let (_, session) = p.connect();
        let flow = p.nodes[A].open_flow(p.now, session, FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() }).unwrap();
        let data = content(6_000_000, seed);
        let (mut written, mut incoming, mut got, mut corrections) = (0, None, Vec::new(), 0);
        let arrived = p.run_until(Duration::from_secs(60), |p| {
            if p.now > Time::from_millis(2000) {
                p.conditions[A].mtu = 1300;
            }
            while written < data.len()
                && let Ok(n) = p.nodes[A].write(p.now, flow, &data[written..])
            {
                written += n;
            }
            corrections = p.nodes[A].flow_stats(flow).map_or(corrections, |s| s.corrections);
            incoming = incoming.or_else(|| p.incoming_flow(B).map(|f| f.0));
            while let Some(f) = incoming
                && let Ok(Some(chunk)) = p.nodes[B].read(p.now, f, 1 << 20)
            {
                got.extend_from_slice(&chunk);
            }
            got.len() == data.len()
        });
        assert!(arrived && got == data, "{} of {} bytes", got.len(), data.len());
        // Every packet that was under way when the MTU fell was repaired in two fragments.
        assert_eq!(corrections, 0, "seed {seed}: acknowledgements of halves were taken for rank");
    }
}
