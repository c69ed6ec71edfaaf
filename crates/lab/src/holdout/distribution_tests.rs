use super::*;
use crate::holdout::line;

const N: u64 = 4000;

fn draws(kind: Kind) -> Vec<Conditions> {
    (0..N).map(|number| Conditions::draw(Draw { kind, seed: 1, number })).collect()
}

fn share(draws: &[Conditions], what: impl Fn(&Conditions) -> bool) -> f64 {
    draws.iter().filter(|c| what(c)).count() as f64 / draws.len() as f64
}

/// Three standard deviations of a share of 4000 draws are 2.4 points at most.
fn near(measured: f64, stated: f64) {
    assert!((measured - stated).abs() < 0.024, "{measured} and not {stated}");
}

/// The quantity is log-uniform between the bounds: a quarter of it lies in each quarter of the logarithm.
fn is_log_uniform(values: &[f64], (from, to): (f64, f64)) {
    assert!(values.len() > 200, "{} values", values.len());
    for quarter in 1..4 {
        let bound = from * (to / from).powf(f64::from(quarter) / 4.0);
        let below = values.iter().filter(|value| **value < bound).count() as f64 / values.len() as f64;
        let error = 3.0 * (0.25 / values.len() as f64).sqrt();
        assert!((below - f64::from(quarter) / 4.0).abs() < error, "{below} below {bound}");
    }
    let within = |value: &&f64| **value >= from * 0.995 && **value <= to * 1.005;
    assert_eq!(values.iter().filter(within).count(), values.len());
}

fn narrowest(c: &Conditions) -> f64 {
    c.rates_mbit.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn the_shares_that_the_file_states_are_those_that_are_drawn() {
    let draws = draws(Kind::Bulk);
    for (hops, stated) in HOPS {
        near(share(&draws, |c| c.rates_mbit.len() == hops), stated);
    }
    near(share(&draws, |c| c.loss.is_some()), LOSSY);
    let lossy: Vec<Conditions> = draws.iter().filter(|c| c.loss.is_some()).cloned().collect();
    let loss = |c: &Conditions| c.loss.clone().unwrap();
    near(share(&lossy, |c| matches!(loss(c).burst, Burst::Packets(_))), BURSTS[1]);
    near(share(&lossy, |c| matches!(loss(c).burst, Burst::Ms(_))), BURSTS[2]);
    near(share(&lossy, |c| loss(c).percent > LOSS_HIGH_PERCENT.0), 0.5);
    near(share(&lossy, |c| loss(c).before), LOSS_BEFORE);
    assert!(lossy.iter().all(|c| loss(c).percent <= LOSS_HIGH_PERCENT.1));
    near(share(&draws, |c| c.jitter.is_some()), JITTERY);
    let jittery: Vec<Conditions> = draws.iter().filter(|c| c.jitter.is_some()).cloned().collect();
    for shape in ["uniform", "normal", "pareto"] {
        let third = share(&jittery, |c| c.jitter.as_ref().unwrap().shape == shape);
        assert!((third - 1.0 / 3.0).abs() < 0.035, "{shape}: {third}");
    }
    near(share(&draws, |c| c.queue == QueueKind::Aqm("fq_codel") || c.queue == QueueKind::Aqm("fq_codel:ecn")), AQM[0]);
    near(share(&draws, |c| c.queue == QueueKind::Aqm("pie") || c.queue == QueueKind::Aqm("pie:ecn")), AQM[1]);
    near(share(&draws, |c| c.reorder.is_some()), REORDERED);
    near(share(&draws, |c| c.outage.is_some()), OUTAGES);
    near(share(&draws, |c| !c.changes.is_empty()), CHANGES);
    near(share(&draws, |c| c.mtu == 1500), 0.6);
    near(share(&draws, |c| c.ip == 6), IP6);
}

#[test]
fn rates_delays_and_queues_are_log_uniform_between_their_bounds() {
    let draws = draws(Kind::Bulk);
    is_log_uniform(&draws.iter().map(narrowest).collect::<Vec<_>>(), RATE_MBIT);
    is_log_uniform(&draws.iter().map(|c| c.delays_ms.iter().sum()).collect::<Vec<_>>(), ONE_WAY_MS);
    let bdp = |c: &Conditions| if let QueueKind::DropTail(bdp) = c.queue { Some(bdp) } else { None };
    is_log_uniform(&draws.iter().filter_map(bdp).collect::<Vec<_>>(), QUEUE_BDP);
    let low = |c: &Conditions| c.loss.as_ref().map(|loss| loss.percent).filter(|percent| *percent <= LOSS_LOW_PERCENT.1);
    is_log_uniform(&draws.iter().filter_map(low).collect::<Vec<_>>(), LOSS_LOW_PERCENT);
}

#[test]
fn what_happens_in_mid_run_happens_in_the_counted_time_and_a_run_is_bounded() {
    for c in draws(Kind::Bulk) {
        let counted = c.seconds - c.warmup_s;
        let moments = c.changes.iter().map(|change| change.0).chain(c.outage.map(|outage| outage.0));
        assert!(moments.into_iter().all(|at| at > c.warmup_s && at < c.seconds - 0.29 * counted), "{c:?}");
        assert!(c.outage.is_none_or(|(_, lasts)| lasts <= counted / 5.0 + 1e-3), "{c:?}");
        assert!((9.99..=30.6).contains(&counted) && c.warmup_s <= 6.2, "{c:?}");
        // The earliest packet of a jittery link needs some time at least.
        if let Some(jitter) = &c.jitter {
            let earliest = match jitter.shape {
                "normal" => 4.0,
                "pareto" => 0.58,
                _ => 1.0,
            };
            assert!(jitter.ms * earliest <= c.delays_ms[jitter.link] * 1.006, "{c:?}");
        }
    }
}

#[test]
fn kinds_share_their_links_and_messages_fit_them() {
    for (bulk, messages) in draws(Kind::Bulk).iter().zip(draws(Kind::Messages)) {
        assert_eq!(
            (&bulk.rates_mbit, &bulk.delays_ms, bulk.queue, bulk.outage),
            (&messages.rates_mbit, &messages.delays_ms, messages.queue, messages.outage)
        );
        assert!(!matches!(messages.loss, Some(Loss { burst: Burst::Packets(_), .. })));
        let (pace, size) = messages.messages;
        assert!(pace * f64::from(size) * 8.0 <= 0.31 * narrowest(&messages) * 1e6 && size >= 16, "{messages:?}");
    }
}

#[test]
fn every_draw_is_a_command_that_sim_understands_and_that_says_the_same() {
    for kind in Kind::ALL {
        for number in 0..300 {
            let c = Conditions::draw(Draw { kind, seed: 5, number });
            let scenario = line::of(&c).scenario().unwrap_or_else(|e| panic!("{c:?}: {e}"));
            assert_eq!(scenario.hops.len(), c.rates_mbit.len());
            for (link, hop) in scenario.hops.iter().enumerate() {
                let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
                assert!(close(hop.forward.rate.unwrap().as_mbit(), c.rates_mbit[link]), "{c:?}");
                assert!(close(hop.forward.delay.0.as_secs_f64() * 1e3, c.delays_ms[link]), "{c:?}");
                let lossy = c.loss.as_ref().filter(|loss| loss.link.is_none_or(|only| only == link));
                assert!((hop.forward.loss.get() * 100.0 - lossy.map_or(0.0, |loss| loss.percent)).abs() < 1e-9, "{c:?}");
                let jittery = c.jitter.as_ref().filter(|jitter| jitter.link == link);
                assert_eq!(hop.forward.jitter_reorder, jittery.is_some_and(|jitter| jitter.reorders));
                assert_eq!(
                    (hop.forward.mtu, hop.forward.at.len(), hop.forward.outage.len()),
                    (c.mtu, c.changes.len(), usize::from(c.outage.is_some()))
                );
            }
            if let Some(back) = c.back_mbit {
                assert!((scenario.hops[0].reverse.rate.unwrap().as_mbit() - back).abs() < 1e-3 * back);
            }
        }
    }
}

#[test]
fn a_draw_is_the_same_on_every_machine_and_in_every_year() {
    // These move only when the distribution does, and then every figure that was made with it is another's.
    let command = |seed, number| line::of(&Conditions::draw(Draw { kind: Kind::Bulk, seed, number })).to_string();
    assert_eq!(
        command(1, 0),
        "noctule-lab sim --rate=92.9mbit --delay=16.1ms --loss=1.85% --loss-model=gilbert:5.91 --queue=0.161bdp --mtu=1400 \
         --hop=1:jitter=2.04ms,jitter-dist=uniform,jitter-reorder=true --seconds=30 --warmup=5 --seed=278558"
    );
    assert_eq!(
        command(1, 1),
        "noctule-lab sim --hops=2 --rate=1.72mbit --delay=0.924ms --loss=28.7% --loss-model=gilbert:2.06ms --queue=1.35bdp --mtu=1400 \
         --hop=1:jitter=0.924ms,jitter-dist=uniform --hop=2:rate=1.28mbit,delay=0.496ms --seconds=30 --warmup=5 --seed=879789"
    );
    assert_eq!(command(2, 0), "noctule-lab sim --rate=14.9mbit --delay=5.88ms --queue=1.59bdp --seconds=30 --warmup=5 --seed=719918");
}
