//! Datagrams that arrive in one train do what they do one by one.

use super::MS;
use super::pair::{A, B, Conditions, Pair, address, bytes};
use crate::event::Event;
use crate::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use crate::units::Ecn;

/// Everything that B heard and read, sorted: a stream and messages that end, a flow that is reset behind its data, and a link that closes in the train
/// with the last data.
fn story(is_together: bool) -> (Vec<String>, Vec<Vec<u8>>, usize) {
    let mut p = Pair::new(Default::default(), Conditions::default(), 3);
    let (link, session) = p.connect();
    let stream = p.nodes[A].open_flow(p.now, session, FlowOptions { kind: FlowKind::Stream, ..Default::default() }).unwrap();
    let messages = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
    let given_up = p.nodes[A].open_flow(p.now, session, FlowOptions { kind: FlowKind::Stream, ..Default::default() }).unwrap();
    let (mut heard, mut got, mut longest, mut buf) = (Vec::new(), vec![Vec::new(); 4], 0, Vec::new());
    let mut incoming = Vec::new();
    let mut rest = bytes(600_000, 1);
    for round in 0..40 {
        if !rest.is_empty() {
            let _ = p.nodes[A].write_chunk(p.now, stream, &mut rest);
        }
        if rest.is_empty() {
            let _ = p.nodes[A].finish(p.now, stream);
        }
        if round < 10 {
            p.nodes[A].send_message(p.now, messages, bytes(900, round), MessageOptions::default()).unwrap();
            p.nodes[A].write(p.now, given_up, &bytes(2000, round)).unwrap();
        }
        if round == 10 {
            p.nodes[A].reset(p.now, given_up, 7).unwrap();
            p.nodes[A].finish(p.now, messages).unwrap();
        }
        for (from, to) in [(A, B), (B, A)] {
            while let Some(t) = p.nodes[from].poll_transmit(p.now, 44, &mut buf) {
                let stride = t.segment_size.unwrap_or(t.len);
                longest = longest.max(t.len.div_ceil(stride));
                if is_together {
                    let n = p.nodes[to].handle_train(p.now, address(from), None, Ecn::NotEct, &mut buf, stride);
                    assert_eq!(n as usize, t.len.div_ceil(stride));
                } else {
                    buf.chunks_mut(stride).for_each(|one| p.nodes[to].handle_datagram(p.now, address(from), None, Ecn::NotEct, one));
                }
            }
        }
        if round == 39 {
            // The last message and CLOSE leave in one train.
            let last = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
            p.nodes[A].send_message(p.now, last, bytes(300, 99), MessageOptions::default()).unwrap();
            p.nodes[A].finish(p.now, last).unwrap();
            let mut train = Vec::new();
            while p.nodes[A].poll_transmit(p.now, 1, &mut buf).is_some() {
                train.push(buf.clone());
            }
            p.nodes[A].close_link(p.now, link, 3, "over").unwrap();
            while p.nodes[A].poll_transmit(p.now, 1, &mut buf).is_some() {
                train.push(buf.clone());
            }
            let stride = train[0].len();
            assert!(train.len() >= 2 && train[1..].iter().all(|d| d.len() <= stride));
            let mut whole = [&train[0][..], &train[1]].concat();
            match is_together {
                true => assert_eq!(p.nodes[B].handle_train(p.now, address(A), None, Ecn::NotEct, &mut whole, stride), 2),
                false => whole.chunks_mut(stride).for_each(|one| p.nodes[B].handle_datagram(p.now, address(A), None, Ecn::NotEct, one)),
            }
        }
        while let Some(event) = p.nodes[B].poll_event() {
            if let Event::FlowIncoming { flow, .. } = &event {
                incoming.push(*flow);
            }
            if !matches!(event, Event::FlowReadable(_)) {
                heard.push(format!("{event:?}"));
            }
        }
        for (of, flow) in incoming.iter().enumerate() {
            match of {
                1 | 3 => {
                    while let Ok(Some(m)) = p.nodes[B].recv_message(p.now, *flow) {
                        got[of].extend_from_slice(&m.data);
                    }
                }
                _ => {
                    while let Ok(Some(chunk)) = p.nodes[B].read(p.now, *flow, 1 << 20) {
                        if chunk.is_empty() {
                            break;
                        }
                        got[of].extend_from_slice(&chunk);
                    }
                }
            }
        }
        while p.nodes[A].poll_event().is_some() {}
        p.now += MS(5);
        (0..2).for_each(|n| p.nodes[n].handle_timeout(p.now));
    }
    heard.sort();
    (heard, got, longest)
}

#[test]
fn a_train_does_what_its_datagrams_do_one_by_one() {
    let (together, alone) = (story(true), story(false));
    assert!(together.2 > 20, "trains of {}", together.2);
    assert_eq!(together.0, alone.0);
    assert!(
        together.1 == alone.1,
        "{:?} and {:?} bytes",
        together.1.iter().map(Vec::len).collect::<Vec<_>>(),
        alone.1.iter().map(Vec::len).collect::<Vec<_>>()
    );
    assert!(together.1[0] == bytes(600_000, 1)[..] && together.1[1].len() == 9000);
    assert_eq!(together.1[3], bytes(300, 99), "what came before CLOSE");
    assert!(together.0.iter().any(|e| e.contains("LinkDown")), "{:?}", together.0);
}

/// Messages whose lifetime ends while they are under way, and the word that they are given up, which arrives with them.
fn given_up(is_together: bool) -> usize {
    let mut p = Pair::new(Default::default(), Conditions::default(), 3);
    let (_, session) = p.connect();
    let options = FlowOptions { mode: Mode::Btp, lifetime: Some(MS(10)), class: Class::Latency, ..Default::default() };
    let flow = p.nodes[A].open_flow(p.now, session, options).unwrap();
    let (mut train, mut buf, mut got, mut incoming) = (Vec::new(), Vec::new(), 0, None);
    // The first message makes the flow known; what follows arrives in one train, 30 ms later.
    for round in 0..2 {
        for i in 0..5 {
            p.nodes[A].send_message(p.now, flow, bytes(1200, i), MessageOptions::default()).unwrap();
        }
        if round == 0 {
            p.run_until(MS(100), |_| false);
            incoming = p.incoming_flow(B).map(|f| f.0);
            while let Ok(Some(_)) = p.nodes[B].recv_message(p.now, incoming.unwrap()) {}
            continue;
        }
        for _ in 0..30 {
            while p.nodes[A].poll_transmit(p.now, 1, &mut buf).is_some() {
                train.push(buf.clone());
            }
            p.now += MS(1);
            p.nodes[A].handle_timeout(p.now);
        }
    }
    let stride = train.iter().map(Vec::len).max().unwrap();
    let (whole, last) = (train.iter().filter(|d| d.len() == stride).cloned().collect::<Vec<_>>(), train.last().unwrap().clone());
    assert!(whole.len() >= 2 && last.len() < stride, "{:?}", train.iter().map(Vec::len).collect::<Vec<_>>());
    let mut whole = [whole.concat(), last].concat();
    match is_together {
        true => _ = p.nodes[B].handle_train(p.now, address(A), None, Ecn::NotEct, &mut whole, stride),
        false => whole.chunks_mut(stride).for_each(|one| p.nodes[B].handle_datagram(p.now, address(A), None, Ecn::NotEct, one)),
    }
    while let Ok(Some(_)) = p.nodes[B].recv_message(p.now, incoming.unwrap()) {
        got += 1;
    }
    got
}

#[test]
fn what_arrives_before_the_word_that_it_was_given_up_is_taken() {
    assert!(given_up(false) >= 2);
    assert_eq!(given_up(true), given_up(false));
}
