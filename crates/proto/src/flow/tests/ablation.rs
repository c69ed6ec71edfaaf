//! What each answer to loss is worth (docs/decisions/0037): proactive combinations, repair on the fate of every packet, and block feedback alone.

use super::world::*;
use crate::options::Class;
use crate::switch::{Mechanism, without};
use crate::units::Duration;

const MS: Duration = Duration::from_millis(1);

/// Which answers there are.
#[derive(Clone, Copy, Debug)]
struct Answers {
    proactive: bool,
    instant: bool,
}

const VARIANTS: [(&str, Answers); 4] = [
    ("proactive and instant", Answers { proactive: true, instant: true }),
    ("instant only", Answers { proactive: false, instant: true }),
    ("proactive and block feedback", Answers { proactive: true, instant: false }),
    ("block feedback only", Answers { proactive: false, instant: false }),
];

fn with<T>(answers: Answers, story: impl FnOnce() -> T) -> T {
    if answers.instant { story() } else { without(Mechanism::LossFeedback, story) }
}

/// Groups of `packets` packets every `gap`: how long the median, the 95th and the 99.9th percentile were under way beyond the one-way delay and
/// serialisation, and packets sent for each.
fn groups(answers: Answers, story: Story, packets: u64, gap: Duration, count: u64) -> ([Duration; 3], f64) {
    let off = Off { proactive: !answers.proactive, ..Off::default() };
    with(answers, || {
        let mut world = World::new(Story { class: Class::Latency, symbol: 200, off, ..story });
        let base = world.story.one_way + Duration::from_secs_f64(packets as f64 / world.story.rate);
        for _ in 0..count {
            (0..packets).for_each(|_| {
                world.give(100);
            });
            world.run_for(gap);
        }
        world.sender.finish();
        world.run(world.now + Duration::from_secs(30));
        world.assert_all_there();
        let done = |g: u64| (g * packets..(g + 1) * packets).map(|seq| world.delivered[&seq]).max().expect("packets");
        let mut late: Vec<Duration> =
            (0..count).map(|g| done(g).since(world.given[(g * packets) as usize].at).saturating_sub(base)).collect();
        late.sort_unstable();
        let at = |q: f64| late[((late.len() - 1) as f64 * q) as usize];
        ([at(0.5), at(0.95), at(0.999)], world.packets_sent as f64 / (count * packets) as f64)
    })
}

/// Share of 1-p that an ordered bulk flow reaches with a window of 8 BDP.
fn bulk(answers: Answers, loss: f64) -> (f64, f64) {
    with(answers, || {
        let (rate, symbol) = (5000.0, 36);
        let window = (rate * 0.1 * 8.0) as usize;
        let memory = window * (usize::from(symbol) + 128) + 16 * usize::from(symbol);
        let story = Story { loss, rate, symbol, receiver_memory: memory, initial_credit: window as u64, ..Story::default() };
        let mut world = World::new(story);
        world.backlog = u64::MAX;
        world.run_for(Duration::from_secs(2));
        let (done, sent) = (world.delivered.len(), world.packets_sent);
        world.run_for(Duration::from_secs(6));
        let delivered = (world.delivered.len() - done) as f64;
        (delivered / (6.0 * rate * (1.0 - loss)), (world.packets_sent - sent) as f64 / delivered * (1.0 - loss))
    })
}

fn messages(answers: Answers, count: u64) -> ([Duration; 3], f64) {
    let story = Story { loss: 0.1, report_loss: 0.1, rate: 20_000.0, one_way: MS * 50, ..Story::default() };
    groups(answers, story, 1, MS * 10, count)
}

fn blocks(answers: Answers, count: u64) -> ([Duration; 3], f64) {
    let story = Story { loss: 0.06, report_loss: 0.06, rate: 100_000.0, one_way: MS * 5, no_retransmit: 0.97, ..Story::default() };
    groups(answers, story, 72, MS * 50, count)
}

#[test]
#[ignore = "a table to read, not a check"]
fn table_of_answers_to_loss() {
    println!(
        "| | messages, 10 %, RTT 100 ms: p50 / p95 / p99.9 late by | packets each | blocks of 72, 6 %, RTT 10 ms | packets each | bulk, 10 %: of 1-p | sent x (1-p) |"
    );
    let ms = |d: [Duration; 3]| d.map(|d| format!("{:.1}", d.as_secs_f64() * 1e3)).join(" / ") + " ms";
    for (name, answers) in VARIANTS {
        let ((m, mc), (b, bc), (share, sent)) = (messages(answers, 20_000), blocks(answers, 2000), bulk(answers, 0.1));
        println!("| {name} | {} | {mc:.2} | {} | {bc:.3} | {share:.3} | {sent:.3} |", ms(m), ms(b));
    }
}

#[test]
fn each_answer_to_loss_is_worth_a_round_trip_and_more() {
    let [all, instant, _, block] = VARIANTS.map(|(_, answers)| messages(answers, 2000).0);
    assert!(all[1] <= MS, "nothing is late: {all:?}");
    assert!((MS * 95..MS * 180).contains(&instant[1]), "a round trip and detection: {instant:?}");
    assert!(block[1] > instant[1] + MS * 20, "the report comes later than the loss is known: {block:?} {instant:?}");
}
