//! Streams over links that bring nothing back: real nodes in namespaces, links that lose in one direction and carry nothing in the other, IP traffic through
//! the TUN devices. Skipped loudly where namespaces or TUN are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::chain::Chain;
    use noctule_lab::net::emulator::Emulator;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::scenario::Hop;
    use serde_json::Value;
    use std::collections::HashMap;
    use std::net::UdpSocket;
    use std::path::Path;
    use std::process::{Child, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    /// So many links that lose a twentieth in one direction and everything in the other; `None`, after a notice, where this is not permitted.
    fn chain(test: &str, links: usize) -> Option<(Chain, Emulator)> {
        chain_with(test, links, "100%")
    }

    /// The same with another loss in the other direction.
    fn chain_with(test: &str, links: usize, back: &str) -> Option<(Chain, Emulator)> {
        let (mut forward, mut reverse) = (LinkSpec::default(), LinkSpec::default());
        forward.set_list("rate=50mbit,delay=3ms,loss=5%").unwrap();
        reverse.set_list(&format!("rate=50mbit,delay=3ms,loss={back}")).unwrap();
        chain_of(test, &vec![Hop { forward, reverse }; links])
    }

    /// The files of two ends, `a` and `z`; the keys are made.
    fn ends(directory: &Path, first: &str, loss: &str) -> [String; 2] {
        let [a, z] = ["a", "z"].map(|name| {
            std::fs::create_dir(directory.join(name)).unwrap();
            keygen(&directory.join(name), "key").1
        });
        let node = |n: usize, other: (&str, usize, &str), more: &str| {
            let (name, m, key) = other;
            format!(
                "[node]\nkey = \"key\"\nstate = \"state\"\naddresses = [\"10.9.0.{n}\", \"fd09::{n}\"]\n\
                 [[remote]]\nname = \"{name}\"\nkey = \"{key}\"\naddresses = [\"10.9.0.{m}\", \"fd09::{m}\"]\n\
                 [[one-way]]\n{more}\n[tun]\naddresses = [\"10.9.0.{n}/24\", \"fd09::{n}/64\"]\n"
            )
        };
        [
            node(1, ("z", 9, &z), &format!("to = \"z\"\nendpoint = \"{first}\"\nrate = \"20mbit\"\nloss = {loss}\n")),
            node(9, ("a", 1, &a), "from = \"a\"\nlisten = \"0.0.0.0:4243\"\n"),
        ]
    }

    /// A node that passes streams on.
    fn relay(directory: &Path, to: &str, loss: &str) -> String {
        std::fs::create_dir(directory.join("relay")).unwrap();
        keygen(&directory.join("relay"), "key");
        format!("[node]\nkey = \"key\"\n[[one-way]]\nlisten = \"0.0.0.0:4243\"\nendpoint = \"{to}\"\nrate = \"20mbit\"\nloss = {loss}\n")
    }

    /// What a datagram with this number holds.
    fn content(number: u32) -> Vec<u8> {
        let mut state = u64::from(number) + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let length = 100 + number as usize * 37 % 1100;
        number.to_be_bytes().into_iter().chain((4..length).map(|_| next())).collect()
    }

    /// Takes datagrams inside a namespace: how often each number came, and how many were altered.
    struct Taker {
        seen: Arc<Mutex<(HashMap<u32, u32>, usize)>>,
        is_over: Arc<AtomicBool>,
    }

    impl Taker {
        fn start(host: &Namespace) -> Self {
            let socket = udp(host, "[::]:7007");
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (seen, is_over) = (Arc::new(Mutex::new((HashMap::new(), 0))), Arc::new(AtomicBool::new(false)));
            let (all, over) = (Arc::clone(&seen), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut buffer = [0; 2048];
                while !over.load(Ordering::Relaxed) {
                    let Ok(length) = socket.recv(&mut buffer) else { continue };
                    let (counts, altered) = &mut *all.lock().unwrap();
                    let number = buffer[..length].first_chunk().map(|n| u32::from_be_bytes(*n));
                    match number.filter(|n| content(*n) == buffer[..length]) {
                        Some(number) => *counts.entry(number).or_insert(0) += 1,
                        None => *altered += 1,
                    }
                }
            });
            Self { seen, is_over }
        }

        /// How many of the numbers from `first` on came; none twice, none altered.
        fn count(&self, first: u32) -> usize {
            let (counts, altered) = &*self.seen.lock().unwrap();
            assert_eq!(*altered, 0, "not one byte wrong");
            assert!(counts.values().all(|n| *n == 1), "each once");
            counts.keys().filter(|n| **n >= first).count()
        }

        /// Waits until nothing more comes; how many came.
        fn settled(&self, first: u32) -> usize {
            let deadline = Instant::now() + PATIENCE;
            let mut known = self.count(first);
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let now = self.count(first);
                if now == known || Instant::now() > deadline {
                    return now;
                }
                known = now;
            }
        }
    }

    impl Drop for Taker {
        fn drop(&mut self) {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Sends datagrams with these numbers to both addresses of `z` in turn, a few hundred a second.
    fn send(host: &Namespace, numbers: std::ops::Range<u32>) {
        let (v4, v6) = (udp(host, "0.0.0.0:0"), udp(host, "[::]:0"));
        for number in numbers {
            let datagram = content(number);
            let _ = if number % 2 == 0 { v4.send_to(&datagram, "10.9.0.9:7007") } else { v6.send_to(&datagram, "[fd09::9]:7007") };
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn sender(report: &Value) -> &Value {
        &report["one_way"]["from"][0]["senders"][0]
    }

    fn heard(node: &mut Node, streams: u64) {
        node.wait_for("a stream", |report| sender(report)["streams"].as_u64() == Some(streams));
    }

    const MANY: u32 = 1500;

    #[test]
    fn datagrams_cross_a_link_that_carries_in_one_direction_only() {
        let Some((chain, emulator)) = chain("a stream over one link", 1) else { return };
        let directory = tempfile::tempdir().unwrap();
        let files = ends(directory.path(), "10.77.0.2:4243", "\"5%\"");
        let [a, z] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        let mut node_z = Node::start(directory.path(), "z", &z, &files[1]);
        node_z.status();
        let mut node_a = Node::start(directory.path(), "a", &a, &files[0]);
        heard(&mut node_z, 1);
        let taker = Taker::start(&z);
        send(&a, 0..MANY);
        let arrived = taker.settled(0);
        println!("a stream over one link: {arrived} of {MANY}");
        let report = node_z.status();
        assert!(arrived as f64 >= 0.99 * f64::from(MANY), "{arrived} of {MANY}: {report:#}\n{:#}", node_a.status());
        assert!(sender(&report)["recovered"].as_u64() > Some(20), "{report:#}");

        // A reload that does not concern it leaves the stream alone; another rate begins another one.
        node_a.write(&files[0].replace("fd09::9\"]", "fd09::9\"]\nprefixes = [\"198.51.100.0/24\"]"));
        assert!(node_a.ask(&["reload"]).status.success());
        let to = |report: &Value| report["one_way"]["to"][0].clone();
        assert!(to(&node_a.status())["packets"].as_u64() >= Some(u64::from(MANY)), "it went on");
        node_a.write(&files[0].replace("20mbit", "30mbit"));
        assert!(node_a.ask(&["reload"]).status.success());
        heard(&mut node_z, 2);
        send(&a, MANY..2 * MANY);
        assert!(taker.settled(MANY) as f64 >= 0.99 * f64::from(MANY), "{:#}", node_z.status());

        // The sender is killed in mid-stream and started again: what is sent then arrives, under another key.
        std::thread::scope(|scope| {
            scope.spawn(|| send(&a, 2 * MANY..2 * MANY + 300));
            node_a.kill();
        });
        node_a.restart();
        heard(&mut node_z, 3);
        send(&a, 3 * MANY..4 * MANY);
        assert!(taker.settled(3 * MANY) as f64 >= 0.99 * f64::from(MANY), "{:#}", node_z.status());
        assert_eq!(node_z.status()["one_way"]["from"][0]["ignored"]["replayed"], 0);

        // What the sender says it sent, less what came, is what is known to be lost.
        let report = node_z.wait_for("what was lost", |report| {
            let s = sender(report);
            s["packets"].as_u64().zip(s["lost"].as_u64()).is_some_and(|(p, l)| p + l >= u64::from(3 * MANY))
        });
        assert!(sender(&report)["lost"].as_u64() < Some(u64::from(MANY) / 10), "{report:#}");
        let back = emulator.stats();
        assert!(back.iter().all(|link| link.backward.delivered_packets == 0), "nothing came back: {back:?}");
        let table = String::from_utf8(node_z.ask(&["status"]).stdout).unwrap();
        assert!(table.contains("one way from a at 0.0.0.0:4243, heard"), "{table}");
        let table = String::from_utf8(node_a.ask(&["status"]).stdout).unwrap();
        assert!(table.contains("one way to z at 10.77.0.2:4243: "), "{table}");
    }

    /// Over a relay; what both nodes are told to expect as loss. How many arrive.
    fn over_a_relay(test: &str, of_two: &str, of_one: &str) -> Option<(usize, Value, Value)> {
        let (chain, _emulator) = chain(test, 2)?;
        let directory = tempfile::tempdir().unwrap();
        let files = ends(directory.path(), "10.77.0.2:4243", of_two);
        let between = relay(directory.path(), "10.77.1.2:4243", of_one);
        let [a, b, z] = [0, 1, 2].map(|i: usize| chain.hosts()[i].clone());
        let mut node_z = Node::start(directory.path(), "z", &z, &files[1]);
        let mut node_b = Node::start(directory.path(), "relay", &b, &between);
        node_z.status();
        node_b.status();
        let _node_a = Node::start(directory.path(), "a", &a, &files[0]);
        heard(&mut node_z, 1);
        let taker = Taker::start(&z);
        send(&a, 0..MANY);
        let arrived = taker.settled(0);
        println!("{test}: {arrived} of {MANY}");
        Some((arrived, node_b.status(), node_z.status()))
    }

    #[test]
    fn a_relay_without_keys_recodes_and_datagrams_arrive_over_two_links() {
        let Some((arrived, relay, end)) = over_a_relay("a stream over a relay", "[\"5%\", \"5%\"]", "\"5%\"") else { return };
        assert!(arrived as f64 >= 0.99 * f64::from(MANY), "{arrived} of {MANY}: {relay:#}\n{end:#}");
        let relay = &relay["one_way"]["relays"][0];
        assert!(relay["passed"].as_u64() > Some(u64::from(MANY)) && relay["recoded"].as_u64() > Some(50), "{relay:#}");
        assert!(relay["ranks"][16].as_u64() > Some(10), "{relay:#}");
        assert!(sender(&end)["recovered"].as_u64() > Some(80), "{end:#}");
    }

    /// The twin: the same links, and nothing sent beside.
    #[test]
    fn without_redundancy_every_link_takes_its_share() {
        let Some((arrived, relay, end)) = over_a_relay("a stream without redundancy", "[\"0%\", \"0%\"]", "\"0%\"") else { return };
        let share = arrived as f64 / f64::from(MANY);
        assert!((0.8..0.95).contains(&share), "{share}: {relay:#}\n{end:#}");
        let lost = sender(&end)["lost"].as_u64().unwrap_or(0);
        assert!(lost > u64::from(MANY) / 25, "{end:#}");
    }

    /// TCP needs the other direction as well: another stream, or a link.
    #[test]
    fn tcp_crosses_two_streams_and_a_stream_with_a_link_as_return_path() {
        let Some((chain, _emulator)) = chain_with("TCP over streams", 1, "5%") else { return };
        let [a, z] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        echo(&z, 7007);
        let tun = "\n[tun]";
        let two_streams = |files: [String; 2]| {
            let from = "\n[[one-way]]\nfrom = \"z\"\nlisten = \"0.0.0.0:4243\"\n[tun]";
            let to = "\n[[one-way]]\nto = \"a\"\nendpoint = \"10.77.0.1:4243\"\nrate = \"20mbit\"\nloss = \"5%\"\n[tun]";
            [files[0].replace(tun, from), files[1].replace(tun, to)]
        };
        let with_a_link = |[a, z]: [String; 2]| {
            let a = a.replace("[[remote]]", "[[neighbour]]\nendpoint = \"10.77.0.2\"");
            [a, z.replace("[[remote]]", "[[neighbour]]")]
        };
        for (way, is_link) in [("two streams", false), ("a stream and a link", true)] {
            let directory = tempfile::tempdir().unwrap();
            let files = ends(directory.path(), "10.77.0.2:4243", "\"5%\"");
            let files = if is_link { with_a_link(files) } else { two_streams(files) };
            let mut node_z = Node::start(directory.path(), "z", &z, &files[1]);
            node_z.status();
            let mut node_a = Node::start(directory.path(), "a", &a, &files[0]);
            heard(&mut node_z, 1);
            if is_link {
                node_z.wait_for_session("a");
            } else {
                heard(&mut node_a, 1);
            }
            for to in ["10.9.0.9:7007", "[fd09::9]:7007"] {
                there_and_back(tcp(&a, to).unwrap_or_else(|e| panic!("{way} to {to}: {e}")), 300_000, || {});
            }
            let (here, there) = (node_a.status(), node_z.status());
            assert!(here["one_way"]["to"][0]["packets"].as_u64() > Some(400), "{way}: {here:#}");
            assert!(here["tunnel"]["nodes"]["z"]["sent_packets"].as_u64() > Some(400), "{way}: {here:#}");
            assert!(sender(&there)["packets"].as_u64() > Some(400), "{way}: {there:#}");
        }
    }

    /// An attacker on the link passes datagrams on, records them, and alters every fiftieth.
    #[test]
    fn garbage_and_recordings_are_ignored_and_counted_even_by_a_node_that_was_started_anew() {
        let Some((chain, _emulator)) = chain("recordings of a stream", 2) else { return };
        let directory = tempfile::tempdir().unwrap();
        let files = ends(directory.path(), "10.77.0.2:4243", "\"5%\"");
        let [a, b, z] = [0, 1, 2].map(|i: usize| chain.hosts()[i].clone());
        let mut node_z = Node::start(directory.path(), "z", &z, &files[1]);
        node_z.status();
        let recorder = udp(&b, "0.0.0.0:4243");
        recorder.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let tape = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (kept, over, onward) = (Arc::clone(&tape), Arc::clone(&is_over), recorder.try_clone().unwrap());
        let recording = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                let Ok(length) = onward.recv(&mut buffer) else { continue };
                let mut tape = kept.lock().unwrap();
                tape.push(buffer[..length].to_vec());
                buffer[length - 1] ^= u8::from(tape.len() % 50 == 0);
                drop(tape);
                let _ = onward.send_to(&buffer[..length], "10.77.1.2:4243");
            }
        });
        let mut node_a = Node::start(directory.path(), "a", &a, &files[0]);
        heard(&mut node_z, 1);
        let taker = Taker::start(&z);
        send(&a, 0..MANY);
        taker.settled(0);
        node_a.kill();
        is_over.store(true, Ordering::Relaxed);
        recording.join().unwrap();
        let tape = tape.lock().unwrap().clone();
        let play = |socket: &UdpSocket| {
            for datagram in &tape {
                let _ = socket.send_to(datagram, "10.77.1.2:4243");
                std::thread::sleep(Duration::from_micros(500));
            }
        };

        let before = taker.settled(0);
        let report = node_z.status();
        assert!(before as f64 >= 0.99 * f64::from(MANY) && sender(&report)["polluted"].as_u64() > Some(10), "{before}: {report:#}");

        // Inventions, and all of it again: nothing new comes out.
        for n in 0..200u32 {
            let _ = recorder.send_to(&content(n), "10.77.1.2:4243");
            std::thread::sleep(Duration::from_millis(1));
        }
        play(&recorder);
        // What had not arrived may arrive now: played again, it is the sender's word all the same, and comes once.
        assert!(taker.settled(0) < before + MANY as usize / 50);
        let report = node_z.status();
        let ignored = &report["one_way"]["from"][0]["ignored"];
        assert!(ignored["garbage"].as_u64() > Some(100) && ignored["replayed"].as_u64() > Some(3), "{report:#}");
        assert!(sender(&report)["over"].as_u64() > Some(u64::from(MANY) / 2), "{report:#}");
        assert_eq!(sender(&report)["streams"], 1);

        // Started anew it has not forgotten what it has heard.
        let before = taker.settled(0);
        node_z.kill();
        node_z.restart();
        node_z.status();
        play(&recorder);
        let report = node_z.wait_for("the recording", |report| report["one_way"]["from"][0]["ignored"]["unknown"].as_u64() > Some(1000));
        assert_eq!((taker.settled(0), sender(&report)["streams"].as_u64()), (before, Some(0)), "{report:#}");
    }

    #[test]
    fn an_address_in_use_is_told_and_nothing_starts() {
        let directory = tempfile::tempdir().unwrap();
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        keygen(directory.path(), "key");
        let file = format!(
            "[node]\nkey = \"key\"\nlisten = \"127.0.0.1:0\"\n[[one-way]]\nlisten = \"{at}\"\nendpoint = \"192.0.2.1:4243\"\nrate = \"1mbit\"\nloss = \"1%\"\n[control]\nsocket = \"socket\"\n"
        );
        std::fs::write(directory.path().join("node.toml"), file).unwrap();
        let run = |more: &[&str]| noctule().args(["node", "--config"]).arg(directory.path().join("node.toml")).args(more).output().unwrap();
        let out = run(&["--check"]);
        assert!(String::from_utf8_lossy(&out.stdout).contains("on to 192.0.2.1:4243 at 1.0 Mbit/s"), "{out:?}");
        let out = run(&[]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(10) && text.contains(&format!("[[one-way]] listen {at}")) && text.contains("end the program"),
            "{text}"
        );

        // At a reload it is told, too, and the node goes on; when the address is free, the next reload takes it.
        let path = directory.path().join("node.toml");
        let with = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = with.split_at(with.find("[[one-way]]").unwrap());
        std::fs::write(&path, format!("{head}{}", &rest[rest.find("[control]").unwrap()..])).unwrap();
        let _node = End(noctule().args(["node", "--config"]).arg(&path).stderr(Stdio::null()).spawn().unwrap());
        let ask = |word: &str| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let out = noctule().args([word, "--socket"]).arg(directory.path().join("socket")).output().unwrap();
                if out.status.success() {
                    return String::from_utf8(out.stdout).unwrap();
                }
                assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&out.stderr));
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        assert!(!ask("status").contains("one way"));
        std::fs::write(&path, with).unwrap();
        let said = ask("reload");
        assert!(said.contains(&format!("[[one-way]] listen {at}")), "{said}");
        assert!(!ask("status").contains("one way"));
        drop(taken);
        assert!(ask("reload").starts_with("reloaded"));
        assert!(ask("status").contains(&format!("one way from {at} on to 192.0.2.1:4243: 0 datagrams in")));
    }

    /// A process that is ended when dropped.
    struct End(Child);

    impl Drop for End {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
