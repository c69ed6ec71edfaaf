//! A relay and its children, without links.

use super::*;
use bytes::Bytes;

const A: ChildId = ChildId(0);
const B: ChildId = ChildId(1);

fn relay() -> (Layout, Relay) {
    let layout = Object::of(600_000).layout;
    let mut relay = Relay::new(layout, RelayConfig::default());
    relay.add(A);
    relay.add(B);
    (layout, relay)
}

fn packet(n: u32) -> (PacketId, Bytes) {
    (PacketId::coded(n / 60, n % 60), Bytes::from(n.to_be_bytes().to_vec()))
}

/// One packet a millisecond from `from` on, with B's room at every `every`-th; what each child got, of how many that were taken.
fn play(relay: &mut Relay, from: u64, until: u64, every: u64) -> (u64, u64, u64) {
    let (mut a, mut b, mut taken) = (0, 0, 0);
    for ms in from..until {
        let (mut has_a, mut has_b) = (true, ms % every == 0);
        loop {
            match relay.poll(at(ms), |child| if child == A { has_a } else { has_b }) {
                Poll::Wait(_) => break,
                Poll::Want if taken > ms - from => break,
                Poll::Want => {
                    let (id, bytes) = packet((from + taken) as u32);
                    relay.push(id, bytes);
                    taken += 1;
                }
                Poll::Send(A, _) => (a, has_a) = (a + 1, false),
                Poll::Send(..) => (b, has_b) = (b + 1, false),
            }
        }
    }
    (a, b, taken)
}

#[test]
fn children_of_somewhat_different_rates_wait_for_each_other() {
    let (_, mut relay) = relay();
    for ms in 0..4000u64 {
        // B has room three times out of four.
        let mut room = [true, ms % 4 != 0];
        while let Poll::Send(child, _) = {
            let poll = relay.poll(at(ms), |child| room[child.0 as usize]);
            match poll {
                Poll::Want => {
                    let (id, bytes) = packet(ms as u32);
                    relay.push(id, bytes);
                    relay.poll(at(ms), |child| room[child.0 as usize])
                }
                other => other,
            }
        } {
            room[child.0 as usize] = false;
        }
    }
    assert_eq!((relay.stats().skipped, relay.lagging().count()), (0, 0), "{:?}", relay.stats());
}

#[test]
fn a_child_at_a_tenth_of_the_rate_lags_and_the_other_goes_on() {
    let (_, mut relay) = relay();
    play(&mut relay, 0, 300, 10);
    assert_eq!(relay.lagging().collect::<Vec<_>>(), [B]);
    let (a, b, taken) = play(&mut relay, 300, 1300, 10);
    assert!(a >= 990 && (90..=110).contains(&b), "{a} and {b} of {taken}");
}

#[test]
fn a_child_that_is_alone_in_need_sets_the_pace_and_misses_nothing() {
    let (layout, mut relay) = relay();
    play(&mut relay, 0, 300, 10);
    let all = Status { first: layout.blocks(), ahead: layout.blocks(), wanted: Vec::new() };
    relay.on_status(A, all);
    let before = relay.stats().skipped;
    let (_, b, taken) = play(&mut relay, 300, 2300, 10);
    assert!(b >= 190 && taken <= b + 2 && relay.stats().skipped <= before + 1, "{b} of {taken}, {:?}", relay.stats());
}

#[test]
fn no_child_gets_packets_of_blocks_that_it_has_and_the_parent_hears_of_all_as_of_one() {
    let (layout, mut relay) = relay();
    assert_eq!(relay.status(), None);
    relay.on_status(A, Status { first: 1, ahead: 1, wanted: vec![0, 3] });
    assert_eq!(relay.status(), None, "one child has not told anything");
    relay.on_status(B, Status { first: 0, ahead: 0, wanted: vec![7] });
    let merged = relay.status().unwrap();
    assert_eq!((merged.first, merged.ahead, merged.need(&layout, 0), merged.need(&layout, 2)), (0, 1, 7, layout.block_packets(2)));
    let (id, bytes) = packet(5);
    assert_eq!(relay.poll(at(0), |_| true), Poll::Want);
    relay.push(id, bytes.clone());
    assert_eq!(relay.poll(at(0), |_| true), Poll::Send(B, bytes));
    assert_eq!(relay.poll(at(0), |_| true), Poll::Want);
    assert_eq!(relay.stats().spared, 1);
}
