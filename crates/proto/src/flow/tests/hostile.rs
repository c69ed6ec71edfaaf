use super::world::{content, symbol};
use crate::error::Code;
use crate::flow::{Offer, Passing, Receiver, ReceiverConfig, Row, RowForm, SendContext, Sender, SenderConfig, Stage, Symbol};
use crate::ids::{FlowLabel, Seq};
use crate::options::{Class, Mode};
use crate::sent::SentItem;
use crate::units::{Duration, Probability, Time};
use crate::wire::frame::{Coded, Coefficients};
use proptest::prelude::*;

const T: u16 = 200;
/// Beyond the largest number that the wire carries.
const MOST: u64 = 1 << 62;

fn receiver(memory: usize) -> Receiver {
    Receiver::new(ReceiverConfig { label: FlowLabel(1), batch_size: 16, symbol: T, memory, initial_credit: 256 })
}

fn coded<'a>(base: u64, n: u8, coefficients: Coefficients<'a>, symbol: &'a [u8]) -> Coded<'a> {
    Coded { flow: FlowLabel(1), base: Seq(base), n, coefficients, symbol }
}

#[test]
fn what_does_not_fit_the_flow_is_refused_with_its_reason() {
    let mut r = receiver(1 << 20);
    let s = symbol(&[1; 50]);
    let large = symbol(&[1; 300]);
    let refused = |code| Offer::Refused(code);
    for (c, reason) in [
        (coded(0, 0, Coefficients::Seed(1), &s), Code::SpanInvalid),
        (coded(0, 65, Coefficients::Seed(1), &s), Code::SpanInvalid),
        (coded(0, 4, Coefficients::Index(4), &s), Code::SpanInvalid),
        (coded(0, 4, Coefficients::Vector(&[1, 2, 3]), &s), Code::SpanInvalid),
        (coded(0, 4, Coefficients::BitmapSeed { bitmap: 0, seed: 1 }, &s), Code::SpanInvalid),
        (coded(0, 4, Coefficients::BitmapSeed { bitmap: 16, seed: 1 }, &s), Code::SpanInvalid),
        (coded(0, 4, Coefficients::Seed(1), &s[..1]), Code::SpanInvalid),
        (coded(0, 4, Coefficients::Seed(1), &large), Code::SpanInvalid),
        (coded(0, 4, Coefficients::Index(0), &s[..30]), Code::SpanInvalid),
        (coded(u64::MAX - 15, 16, Coefficients::Seed(1), &s), Code::SpanInvalid),
        (coded(1 << 60, 16, Coefficients::Seed(1), &s), Code::FlowControl),
        (coded(1024, 1, Coefficients::Index(0), &s), Code::FlowControl),
    ] {
        assert_eq!(r.on_coded(Time::ZERO, &c), refused(reason), "{c:?}");
    }
    assert_eq!(r.stats().refused_packets, 12);
    assert!(r.memory() < 4096 && r.poll_delivery().is_none());
    assert_eq!(r.on_coded(Time::ZERO, &coded(240, 16, Coefficients::Index(15), &s)), Offer::Accepted);
    assert_eq!(r.on_coded(Time::ZERO, &coded(240, 16, Coefficients::Index(15), &s)), Offer::Redundant);
    assert_eq!(r.on_end(Seq(10)), Err(Code::SpanInvalid), "an end before what was received");
    assert_eq!((r.on_end(Seq(256)), r.on_end(Seq(255))), (Ok(()), Err(Code::SpanInvalid)));
}

#[test]
fn a_symbol_that_contradicts_its_length_after_decoding_is_refused_and_the_rest_stands() {
    let mut r = receiver(1 << 20);
    let first = symbol(&content(0, 60));
    assert_eq!(r.on_coded(Time::ZERO, &coded(0, 2, Coefficients::Index(0), &first)), Offer::Accepted);
    // A "combination" that is not one: packet 1 decodes to nonsense whose length does not fit.
    let nonsense = [0xFFu8; 62];
    assert_eq!(r.on_coded(Time::ZERO, &coded(0, 2, Coefficients::Vector(&[0, 1]), &nonsense)), Offer::Refused(Code::SpanInvalid));
    let second = symbol(&content(1, 30));
    assert_eq!(r.on_coded(Time::ZERO, &coded(0, 2, Coefficients::Index(1), &second)), Offer::Accepted);
    let mut got: Vec<_> = std::iter::from_fn(|| r.poll_delivery()).collect();
    got.sort();
    assert_eq!(got, vec![(Seq(0), first.slice(2..)), (Seq(1), second.slice(2..))]);
}

#[test]
fn what_was_handed_over_and_is_kept_for_decoding_is_known_until_its_batch_is_complete() {
    let mut r = receiver(1 << 20);
    let s = symbol(&[1; 50]);
    for index in (0..16).filter(|i| *i != 3) {
        assert_eq!(r.on_coded(Time::ZERO, &coded(0, index + 1, Coefficients::Index(index), &s)), Offer::Accepted);
    }
    while r.poll_delivery().is_some() {}
    assert_eq!(r.handed_over(), 15 * s.len());
    assert!(r.memory() > r.handed_over());
    assert_eq!(r.on_coded(Time::ZERO, &coded(0, 4, Coefficients::Index(3), &s)), Offer::Accepted);
    assert_eq!(r.handed_over(), 0);
}

#[test]
fn memory_stays_below_its_bound_and_what_is_refused_is_said() {
    let memory = 20_000;
    let mut r = receiver(memory);
    let s = symbol(&[7; 190]);
    let mut refused = 0;
    for i in 0..256 {
        // One packet of every batch missing, nothing polled: everything has to be kept.
        if i % 16 != 3 {
            refused += u64::from(
                r.on_coded(Time::ZERO, &coded(i / 16 * 16, 16, Coefficients::Index((i % 16) as u8), &s)) == Offer::Refused(Code::NoMemory),
            );
        }
        assert!(r.memory() <= memory, "{}", r.memory());
    }
    assert!(refused > 0);
    assert!(r.poll_report(Time::from_millis(1), Duration::from_millis(10)).is_some(), "RANK of the span that was refused");
}

/// Without congestion control repairs are paid for by what arrives. Where all of them are lost nothing is in flight that could pay.
#[test]
fn what_a_receiver_says_it_misses_is_repaired_though_nothing_arrived() {
    let mut s = Sender::new(SenderConfig {
        label: FlowLabel(1),
        batch_size: 16,
        symbol: T,
        class: Class::Bulk,
        mode: Mode::Brtp,
        waits_in_order: true,
        no_retransmit: Probability::new(0.99),
        memory: 100_000,
        initial_credit: 64,
    });
    let context = SendContext { uncontrolled: true, ..super::world::World::new(super::world::Story::default()).context() };
    let now = Time::from_millis(1);
    while s.room() > 0 && s.outstanding() < 32 {
        s.push(now, Symbol::whole(symbol(&[1; 20])), None);
        let out = s.poll(now, Stage::Source, &context, 1200).unwrap();
        s.on_lost(now, &out.item);
    }
    while let Some(out) = s.poll(now, Stage::Repair, &context, 1200) {
        s.on_lost(now, &out.item);
    }
    assert!(!s.has(Stage::Repair), "all that is paid for is sent");
    s.on_rank(Time::from_millis(500), Seq(0), 16, 0, 0xffff);
    assert!(s.has(Stage::Repair) && s.poll(Time::from_millis(500), Stage::Repair, &context, 1200).is_some());
}

proptest! {
    #[test]
    fn arbitrary_packets_never_panic_and_never_exceed_memory(
        packets in prop::collection::vec((0u64..320, 0u8..=70, 0u8..4, any::<u16>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..80), prop::collection::vec(any::<u8>(), 0..20)), 0..200),
        skip in prop_oneof![0u64..400, 0..MOST], end in prop_oneof![0u64..400, 0..MOST],
    ) {
        let mut r = receiver(150_000);
        for (i, (base, n, form, seed, bitmap, data, row)) in packets.iter().enumerate() {
            let coefficients = match form {
                0 => Coefficients::Index(*seed as u8 % 20),
                1 => Coefficients::Seed(*seed),
                2 => Coefficients::BitmapSeed { bitmap: *bitmap, seed: *seed },
                _ => Coefficients::Vector(row),
            };
            // Half of them well aligned, so that they get past the first check.
            let (base, n) = if i % 2 == 0 { (base / 16 * 16, n % 17) } else { (*base, *n) };
            let now = Time::from_millis(i as u64);
            r.on_coded(now, &coded(base, n, coefficients, data));
            prop_assert!(r.memory() <= 150_000);
            if i % 50 == 20 { r.on_skip(Seq(skip)); }
            if i % 50 == 40 { let _ = r.on_end(Seq(end)); }
            if i % 3 == 0 { while r.poll_delivery().is_some() {} }
            if i % 5 == 0 { while r.poll_report(now, Duration::from_millis(20)).is_some() {} }
            r.handle_timeout(now);
            r.consume(u64::from(*seed));
        }
    }

    #[test]
    fn arbitrary_feedback_neither_panics_nor_keeps_a_sender(
        is_relay in any::<bool>(),
        feedback in prop::collection::vec((0u8..9, 0..MOST, 0u64..200, any::<u8>(), any::<u8>(), 0..MOST), 0..200),
    ) {
        let config = SenderConfig {
            label: FlowLabel(1), batch_size: 16, symbol: T, class: Class::Latency, mode: Mode::Brtp, waits_in_order: true,
            no_retransmit: Probability::new(0.99), memory: 100_000, initial_credit: 64,
        };
        let mut s = if is_relay { Sender::relaying(config, Seq(0)) } else { Sender::new(config) };
        let context = crate::flow::SendContext {
            rtt: Duration::from_millis(10), rtt_var: Duration::ZERO, min_rtt: Duration::from_millis(10),
            loss: crate::redundancy::LossEstimate { mean: Probability::new(0.1), ..Default::default() },
            gap: Duration::ZERO,
            spare: true,
            idle_share: Probability::ONE,
            heard: 1000,
            slack: true,
            uncontrolled: false,
        };
        let mut items: Vec<SentItem> = Vec::new();
        for (i, (kind, any, small, n, rank, bits)) in feedback.into_iter().enumerate() {
            let now = Time::from_millis(i as u64);
            if is_relay {
                // What a receiver of this node can have taken: within its credit.
                let (base, n) = (Seq(i as u64 / 16 * 16), i as u8 % 16 + 1);
                let row = Row { n, form: RowForm::Source(n - 1) };
                s.push_passing(Passing { base, row, symbol: symbol(&[1; 20]) }, None);
            } else if s.room() > 0 {
                s.push(now, Symbol::whole(symbol(&[1; 20])), (n % 5 == 0).then_some(now + Duration::from_millis(20)));
            }
            for stage in [crate::flow::Stage::Repair, crate::flow::Stage::Source, crate::flow::Stage::Proactive, crate::flow::Stage::Probe] {
                if let Some(out) = s.poll(now, stage, &context, 1200) {
                    let mut bytes = Vec::new();
                    s.write_symbol(&out, &mut bytes);
                    prop_assert_eq!(bytes.len(), out.len);
                    items.push(out.item);
                }
            }
            match kind {
                0 => s.on_rank(now, Seq(small / 16 * 16), n, rank, bits),
                1 => s.on_rank(now, Seq(any), n, rank, bits),
                2 => s.on_credit(Seq(small * 2), Seq(small)),
                3 => s.on_credit(Seq(any), Seq(bits)),
                4 => s.on_refused(Seq(small), if n % 2 == 0 { Code::UnknownFlow } else { Code::NoMemory }),
                5 => s.abandon(Seq(small)..Seq(small + u64::from(n))),
                6 => s.on_refused(Seq(any), if n % 2 == 0 { Code::UnknownFlow } else { Code::NoMemory }),
                7 if is_relay => s.give_up_below(Seq(any)),
                _ => if !items.is_empty() {
                    let item = items.remove(any as usize % items.len());
                    match n % 3 { 0 => s.on_acked(now, &item), 1 => s.on_lost(now, &item), _ => s.on_spurious(now, &item) }
                },
            }
            s.handle_timeout(now);
            while s.poll_control(now).is_some() {}
            prop_assert!(s.outstanding() <= 10_000);
        }
    }
}
