//! The proxy over several paths, over a node that recodes, and between clients and targets that see each other's addresses: real processes, each host a
//! namespace. Skipped loudly where namespaces are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::net::privilege;
    use noctule_lab::net::rtnetlink::Rtnetlink;
    use noctule_lab::scenario::Hop;
    use serde_json::Value;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpListener};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    /// Of nobody in the real internet (RFC 5737).
    const TARGET: &str = "198.51.100.1";
    const PORT: u16 = 7000;

    /// A command that prints events; ended when dropped.
    struct Running {
        child: Child,
        events: mpsc::Receiver<Value>,
    }

    impl Running {
        fn start(host: &Namespace, words: &[&str]) -> Self {
            let mut command = host.command(env!("CARGO_BIN_EXE_noctule"));
            command.args(words).env("XDG_CONFIG_HOME", "/dev/null/nowhere").env_remove("HOME");
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let (out, events) = mpsc::channel();
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(out.send(serde_json::from_str(&line).unwrap()))));
            Self { child, events }
        }

        /// The "listening" event.
        fn listening(&self) -> Value {
            loop {
                let event = self.events.recv_timeout(PATIENCE).expect("it listens");
                if event["event"] == "listening" {
                    return event;
                }
            }
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Hosts with their loopback; `None`, after a notice, where this is not permitted.
    fn hosts<const N: usize>(test: &str, names: [&str; N]) -> Option<[Namespace; N]> {
        if let Err(error) = privilege::acquire() {
            skip(test, &error.to_string());
            return None;
        }
        let hosts = names.map(|name| Namespace::new(name).unwrap());
        hosts.iter().for_each(|host| drop(ip(host, "link set lo up")));
        Some(hosts)
    }

    /// Joins two hosts: NET.1 and NET.2.
    fn join(one: &Namespace, other: &Namespace, index: u8, net: &str) -> String {
        let device = format!("eth{index}");
        let mac = |end| [2, 0, 0, 7, index, end];
        one.enter(|| Rtnetlink::open()?.add_veth(&device, mac(1), &device, mac(2), other.descriptor())).unwrap().unwrap();
        for (host, end) in [(one, 1), (other, 2)] {
            ip(host, &format!("addr add {net}.{end}/24 dev {device}"));
            ip(host, &format!("link set {device} up"));
        }
        device
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    }

    /// A target that sends so many bytes to each client that says a line.
    fn downloads(host: &Namespace, at: &str, len: usize) {
        let listener = host.enter(|| TcpListener::bind(at).unwrap()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut line = String::new();
                    let _ = BufReader::new(&stream).read_line(&mut line);
                    let _ = (&stream).write_all(&content(len));
                    let _ = stream.shutdown(Shutdown::Write);
                });
            }
        });
    }

    fn port_of(listening: &Value) -> u16 {
        listening["listeners"][0]["addresses"][0].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    #[test]
    fn a_path_that_is_cut_in_mid_download_loses_no_byte() {
        const LEN: usize = 12 << 20;
        let Some([near, far]) = hosts("a proxy over two paths", ["near", "far"]) else { return };
        let devices = [(0, "10.78.0"), (1, "10.78.1")].map(|(index, net)| join(&near, &far, index, net));
        downloads(&far, &format!("127.0.0.1:{PORT}"), LEN);
        // So slow that it is not all under way, or in buffers, when the path is cut.
        let words = ["proxy", "serve", "--json", "--anyone", "--allow-private", "--bind", "0.0.0.0:4242", "--cc", "rate:60mbit"];
        let server = Running::start(&far, &words);
        let listening = server.listening();
        let key = listening["public_key"].as_str().unwrap();
        let forward = format!("127.0.0.1:0:127.0.0.1:{PORT}");
        let client = Running::start(
            &near,
            &["proxy", "10.78.0.2", "--peer-key", key, "--json", "--path", "10.78.1.1,10.78.1.2:4242", "-L", &forward],
        );
        let mut stream = tcp(&near, &format!("127.0.0.1:{}", port_of(&client.listening()))).unwrap();
        stream.write_all(b"please\n").unwrap();
        // Of the process that reads it: its own namespace.
        let counted = |device: &str| -> u64 {
            let out = near.command("cat").arg("/proc/self/net/dev").output().unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{device}:"))).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let mut got = vec![0; LEN];
        stream.read_exact(&mut got[..LEN / 4]).unwrap();
        // Both carry it by now; the first is the one that the session began on.
        let both = [counted(&devices[0]), counted(&devices[1])];
        assert!(both.iter().all(|bytes| *bytes > 100_000), "{both:?}");
        ip(&near, &format!("link set {} down", devices[0]));
        stream.read_exact(&mut got[LEN / 4..]).expect("the rest comes by the other path");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "and then the end");
        assert!(counted(&devices[1]) > both[1] + LEN as u64 / 2, "it was in the middle of it");
        assert!(got == content(LEN), "every byte is the same");
    }

    #[test]
    fn a_node_between_that_recodes_carries_connections_over_two_hops_that_lose() {
        const LEN: usize = 4 << 20;
        let mut link = LinkSpec::default();
        link.set_list("rate=50mbit,delay=5ms,loss=5%").unwrap();
        let hop = Hop { forward: link.clone(), reverse: link };
        let Some((chain, _emulator)) = chain_of("a proxy over a node", &[hop.clone(), hop]) else { return };
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        for name in ["near", "relay", "far"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        let [near_key, relay_key, far_key] = ["near", "relay", "far"].map(|name| keygen(&dir.join(name), "key").1);
        let neighbour = |name: &str, key: &str, address: &str| {
            format!("[[neighbour]]\nname = \"{name}\"\nkey = \"{key}\"\naddresses = [\"{address}\"]\n")
        };
        let file = format!(
            "[node]\nkey = \"key\"\nlisten = \"0.0.0.0:4242\"\naddresses = [\"10.9.0.2\"]\nrelay = true\n{}{}",
            neighbour("near", &near_key, "10.9.0.1"),
            neighbour("far", &far_key, "10.9.0.3")
        );
        let mut relay = Node::start(dir, "relay", &chain.hosts()[1], &file);
        relay.status();
        let (left, right) = chain.gateways().unwrap();
        let key_file = |name: &str| dir.join(name).join("key").to_str().unwrap().to_owned();
        downloads(chain.last(), &format!("127.0.0.1:{PORT}"), LEN);
        let (to_left, to_right, near_file, far_file) = (left.to_string(), right.to_string(), key_file("near"), key_file("far"));
        let over = |node: &'_ str, address: &'_ str, key: &'_ str| {
            ["--via", node, "--via-key", &relay_key, "--address", address, "--key", key].map(str::to_owned)
        };
        let run = |host: &Namespace, words: &[&str], more: [String; 8]| {
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            Running::start(host, &[words, &more].concat())
        };
        let serve = ["proxy", "serve", "--json", "--allow-private", "--allow", &near_key];
        let server = run(chain.last(), &serve, over(&to_right, "10.9.0.3", &far_file));
        server.listening();
        relay.wait_for_session("far");
        let forward = format!("127.0.0.1:0:127.0.0.1:{PORT}");
        let words = ["proxy", "10.9.0.3", "--peer-key", &far_key, "--json", "-L", &forward];
        let client = run(chain.first(), &words, over(&to_left, "10.9.0.1", &near_file));
        let mut stream = tcp(chain.first(), &format!("127.0.0.1:{}", port_of(&client.listening()))).unwrap();
        stream.write_all(b"please\n").unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == content(LEN), "every byte is the same: {}", got.len());
        let out = relay.ask(&["status", "--json", "--flows"]);
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(sum_of(&report, "recoded_packets") > 0, "the node made packets of its own: {report:#}");
    }

    /// The sum of a figure wherever it stands in a report.
    fn sum_of(report: &Value, name: &str) -> u64 {
        match report {
            Value::Object(map) => {
                map.iter().map(|(key, value)| if key == name { value.as_u64().unwrap_or(0) } else { sum_of(value, name) }).sum()
            }
            Value::Array(list) => list.iter().map(|value| sum_of(value, name)).sum(),
            _ => 0,
        }
    }

    /// A target that says where each connection comes from, and what it reads.
    fn witness(host: &Namespace) -> mpsc::Receiver<(SocketAddr, Vec<u8>)> {
        let listener = host.enter(|| TcpListener::bind((TARGET, PORT)).unwrap()).unwrap();
        let (out, seen) = mpsc::channel();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut read = Vec::new();
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.read_to_end(&mut read);
                let _ = stream.write_all(b"heard");
                let _ = out.send((stream.peer_addr().unwrap(), read));
            }
        });
        seen
    }

    /// client - near - far - target: the near end takes connections of a client on another host, and the target sees that client.
    #[test]
    fn targets_see_the_address_of_a_client_that_a_trusted_end_names() {
        let test = "the client's own source address";
        let Some([client, near, far, target]) = hosts(test, ["client", "near", "far", "target"]) else { return };
        if Command::new("nft").arg("--version").output().is_err() {
            return skip(test, "nft is not installed (apt-get install nftables)");
        }
        join(&client, &near, 0, "10.79.0");
        join(&near, &far, 1, "10.79.1");
        join(&far, &target, 2, "10.79.2");
        ip(&target, &format!("addr add {TARGET}/32 dev lo"));
        ip(&far, &format!("route add {TARGET} via 10.79.2.2"));
        // What the guide says about routing: answers to clients come to this host, and are handed to the sockets that wait for them.
        ip(&target, "route add default via 10.79.2.1");
        let rules = "table inet noctule_client {\n chain divert {\n  type filter hook prerouting priority mangle;\n  meta l4proto tcp socket transparent 1 meta mark set 0x6e6f0003 accept\n }\n}\n";
        let mut nft = far.command("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        if !nft.wait().unwrap().success() {
            return skip(test, "this kernel lacks nft's socket expression");
        }
        ip(&far, "rule add fwmark 0x6e6f0003 lookup 5110");
        ip(&far, "route add local default dev lo table 5110");
        let seen = witness(&target);
        let dir = tempfile::tempdir().unwrap();
        let (file, key) = keygen(dir.path(), "near");
        let served = |more: &[&str]| {
            let words = ["proxy", "serve", "--json", "--anyone", "--allow-private", "--bind", "10.79.1.2:0"];
            let server = Running::start(&far, &[&words, more].concat());
            let listening = server.listening();
            (server, listening["address"].as_str().unwrap().to_owned(), listening["public_key"].as_str().unwrap().to_owned())
        };
        let ask = |server: &(Running, String, String), more: &[&str]| {
            let forward = format!("10.79.0.2:0:{TARGET}:{PORT}");
            let words = ["proxy", &server.1, "--peer-key", &server.2, "--json", "-L", &forward, "--key", file.to_str().unwrap()];
            let running = Running::start(&near, &[&words, more].concat());
            let mut stream = tcp(&client, &format!("10.79.0.2:{}", port_of(&running.listening()))).unwrap();
            let from = stream.local_addr().unwrap();
            stream.write_all(b"hello").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "heard", "the target's answer comes back");
            let (peer, read) = seen.recv_timeout(PATIENCE).unwrap();
            (from, peer, read)
        };
        let as_client = served(&["--as-client", TARGET, "--trust-source", &key]);
        let (from, peer, read) = ask(&as_client, &["--tell-source"]);
        assert_eq!((peer.ip(), &read[..]), (from.ip(), &b"hello"[..]), "it comes from the client");
        let (_, peer, _) = ask(&as_client, &[]);
        assert_eq!(peer.ip().to_string(), "10.79.1.1", "a near end that says nothing is the client itself");
        let untrusting = served(&["--as-client", TARGET]);
        let (_, peer, _) = ask(&untrusting, &["--tell-source"]);
        assert_eq!(peer.ip().to_string(), "10.79.1.1", "one that is not trusted is, too");
        let header = served(&["--send-proxy-v2", &format!("{TARGET}:{PORT}"), "--trust-source", "all"]);
        let (from, peer, read) = ask(&header, &["--tell-source"]);
        assert_eq!(peer.ip().to_string(), "10.79.2.1", "it is dialled as always");
        let SocketAddr::V4(from) = from else { panic!() };
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        expected.extend([&from.ip().octets()[..], &[198, 51, 100, 1], &from.port().to_be_bytes(), &PORT.to_be_bytes(), b"hello"].concat());
        assert_eq!(read, expected);
    }
}
