//! Nodes that restart under traffic, cleanly or killed: `a - b - c`, each in a namespace, b a relay. Skipped loudly where namespaces or TUN are not permitted.
//!
//! The long form: `RESTARTS=50 cargo test -p noctule-node --test restarts -- --ignored --nocapture`; `SEED=N` repeats a run's moments.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::scenario::Hop;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    /// How long traffic may pause beyond the restart itself.
    const LONGEST_GAP: Duration = Duration::from_secs(3);
    const EVERY: Duration = Duration::from_millis(20);

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    /// Files of a, b and c: both ends call the relay.
    fn files(directory: &Path) -> [String; 3] {
        let keys = ["a", "b", "c"].map(|name| {
            std::fs::create_dir(directory.join(name)).unwrap();
            keygen(&directory.join(name), "key").1
        });
        let node = |n: usize, more: &str| {
            format!("[node]\nkey = \"key\"\naddresses = [\"10.9.0.{n}\"]\n{more}\n[tun]\naddresses = [\"10.9.0.{n}/24\"]\n")
        };
        let other = |kind: &str, n: usize, more: &str| {
            let name = ["a", "b", "c"][n - 1];
            format!("[[{kind}]]\nname = \"{name}\"\nkey = \"{}\"\naddresses = [\"10.9.0.{n}\"]\n{more}\n", keys[n - 1])
        };
        let route = |n: usize| format!("[[route]]\nto = \"10.9.0.{n}\"\nvia = \"b\"\n");
        [
            node(1, &(other("neighbour", 2, "endpoint = \"10.77.0.2\"") + &other("remote", 3, "") + &route(3))),
            node(2, &("relay = true\n".to_owned() + &other("neighbour", 1, "") + &other("neighbour", 3, ""))),
            node(3, &(other("neighbour", 2, "endpoint = \"10.77.1.1\"") + &other("remote", 1, "") + &route(1))),
        ]
    }

    /// Restarts random nodes at random moments while datagrams go there and back; the longest time from a start to the next answer.
    fn restarts(test: &str, times: usize, seed: u64) -> Option<Duration> {
        let mut link = LinkSpec::default();
        link.set_list("rate=50mbit,delay=3ms,loss=1%").unwrap();
        let hop = Hop { forward: link.clone(), reverse: link };
        let (chain, _emulator) = chain_of(test, &[hop.clone(), hop])?;
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let hosts = [chain.hosts()[0].clone(), chain.hosts()[1].clone(), chain.hosts()[2].clone()];
        let mut nodes: Vec<Node> = (0..3).map(|i| Node::start(directory.path(), ["a", "b", "c"][i], &hosts[i], &files[i])).collect();
        echo(&hosts[2], 7007);
        nodes[0].wait_for_session("b");
        nodes[2].wait_for_session("b");
        let socket = udp(&hosts[0], "0.0.0.0:0");
        assert!(ping(&socket, "10.9.0.3:7007").is_some(), "traffic flows at first\n{}\n{}", nodes[0].log(), nodes[2].log());
        let last_answer = Arc::new(Mutex::new(Instant::now()));
        let is_over = Arc::new(AtomicBool::new(false));
        let answers = {
            let (socket, last, over) = (socket.try_clone().unwrap(), Arc::clone(&last_answer), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut buffer = [0; 2048];
                while !over.load(Relaxed) {
                    if socket.recv(&mut buffer).is_ok() {
                        *last.lock().unwrap() = Instant::now();
                    }
                }
            })
        };
        let questions = {
            let over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !over.load(Relaxed) {
                    // An error while the device is away is as good as a loss.
                    let _ = socket.send_to(&[7; 200], "10.9.0.3:7007");
                    std::thread::sleep(EVERY);
                }
            })
        };
        let mut random = Random(seed | 1);
        let mut longest = Duration::ZERO;
        for round in 0..times {
            std::thread::sleep(Duration::from_millis(random.below(1500)));
            let node = match times <= 6 {
                true => [2, 0, 1][round % 3],
                false => random.below(3) as usize,
            };
            let is_killed = if times <= 6 { round % 2 == 0 } else { random.below(2) == 0 };
            match is_killed {
                true => nodes[node].kill(),
                false => nodes[node].terminate(),
            }
            std::thread::sleep(Duration::from_millis(random.below(1500)));
            nodes[node].restart();
            let started = Instant::now();
            let deadline = started + PATIENCE;
            let gap = loop {
                // An answer to a packet from before the start arrives within 50 ms: what comes later answers a new one.
                let last = *last_answer.lock().unwrap();
                if last > started + Duration::from_millis(50) {
                    break last - started;
                }
                if Instant::now() > deadline {
                    for n in &mut nodes {
                        eprintln!("==== {}\n{}", n.name, n.log());
                    }
                    panic!(
                        "round {round}: {} {}, no traffic since; SEED={seed}",
                        nodes[node].name,
                        if is_killed { "killed" } else { "ended" }
                    );
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            eprintln!("round {round}: {} {}, {:.2} s", nodes[node].name, if is_killed { "killed" } else { "ended" }, gap.as_secs_f64());
            longest = longest.max(gap);
        }
        is_over.store(true, Relaxed);
        answers.join().unwrap();
        questions.join().unwrap();
        for node in &mut nodes {
            let report = node.status();
            let polluted: u64 = report["nodes"].as_array().unwrap().iter().filter_map(|n| n["link"]["polluted"].as_u64()).sum();
            assert_eq!(polluted, 0, "{} accuses an honest neighbour: {report:#}", node.name);
        }
        Some(longest)
    }

    #[test]
    fn traffic_goes_on_after_each_of_three_nodes_was_killed_or_ended() {
        // An idle timeout, after which a session that nobody knows would have ended by itself, is 30 s. A busy host takes a second or two of its own.
        let Some(longest) = restarts("three nodes restart", 6, 3) else { return };
        assert!(longest < Duration::from_secs(12), "{longest:?}");
    }

    /// What the other end had open towards the node before is over with its session, and not when a packet is lost in it.
    #[test]
    fn the_first_packet_after_a_restart_is_answered() {
        let mut link = LinkSpec::default();
        link.set_list("rate=50mbit,delay=3ms").unwrap();
        let hop = Hop { forward: link.clone(), reverse: link };
        let Some((chain, _emulator)) = chain_of("the first packet after a restart", &[hop.clone(), hop]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let hosts = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        let mut nodes: Vec<Node> = (0..2).map(|i| Node::start(directory.path(), ["a", "b"][i], &hosts[i], &files[i])).collect();
        echo(&hosts[1], 7007);
        nodes[0].wait_for_session("b");
        let socket = udp(&hosts[0], "0.0.0.0:0");
        assert!(ping(&socket, "10.9.0.2:7007").is_some(), "traffic flows at first\n{}\n{}", nodes[0].log(), nodes[1].log());
        for is_killed in [false, true] {
            match is_killed {
                true => nodes[0].kill(),
                false => nodes[0].terminate(),
            }
            nodes[0].restart();
            nodes[0].wait_for_session("b");
            nodes[1].wait_for_session("a");
            socket.send_to(&[7; 200], "10.9.0.2:7007").unwrap();
            let answer = socket.recv(&mut [0; 2048]);
            assert!(answer.is_ok(), "killed: {is_killed}, {answer:?}\n{}\n{}", nodes[0].log(), nodes[1].log());
        }
    }

    #[test]
    #[ignore = "takes minutes: RESTARTS=50 cargo test -p noctule-node --test restarts -- --ignored --nocapture"]
    fn fifty_random_restarts_under_traffic_leave_no_long_gap() {
        let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
        let (times, seed) = (number("RESTARTS", 50), number("SEED", std::process::id().into()));
        let Some(longest) = restarts("fifty restarts", times as usize, seed) else { return };
        eprintln!("{times} restarts, SEED={seed}: the longest gap after a start was {:.2} s", longest.as_secs_f64());
        assert!(longest <= LONGEST_GAP, "{longest:?}");
    }
}
