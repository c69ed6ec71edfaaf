//! `[tun] tcp = "split"` with real rules of the kernel: a client behind node `a`, a relay `b`, and a server behind node `c`, over links that lose packets.
//! Skipped loudly where namespaces are not permitted or nft is not installed.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::chain::Chain;
    use noctule_lab::net::emulator::Emulator;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::net::rtnetlink::Rtnetlink;
    use noctule_lab::scenario::Hop;
    use noctule_proxy::{Outcome, split, wire};
    use serde_json::Value;
    use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
    use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Echoes what it gets, and its end, behind a line with the client's address.
    const ECHO: u16 = 7000;
    /// Sends this much, and ends.
    const SOURCE: u16 = 7001;
    /// Resets each connection after its first byte.
    const RESETS: u16 = 7002;
    /// Nobody listens.
    const CLOSED: u16 = 7003;
    const SENT: usize = 400_000;

    struct World {
        chain: Chain,
        _emulator: Emulator,
        client: Namespace,
        server: Namespace,
        directory: tempfile::TempDir,
        keys: [String; 3],
    }

    fn serve(host: &Namespace, port: u16, each: impl Fn(TcpStream) + Send + Sync + Copy + 'static) {
        let listener = host.enter(|| TcpListener::bind(SocketAddr::from(([0u16; 8], port))).unwrap()).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || each(stream));
            }
        });
    }

    fn services(host: &Namespace) {
        serve(host, ECHO, |mut stream| {
            // It may be reset already.
            let Ok(client) = stream.peer_addr() else { return };
            let _ = writeln!(stream, "{}", client.ip().to_canonical());
            let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
            let _ = stream.shutdown(Shutdown::Write);
        });
        serve(host, SOURCE, |mut stream| {
            let _ = stream.write_all(&vec![b's'; SENT]);
            let _ = stream.shutdown(Shutdown::Write);
            // Until the client has read it, and says so by its end.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        serve(host, RESETS, |mut stream| {
            let _ = stream.read(&mut [0; 1]);
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        });
    }

    impl World {
        fn new(test: &str) -> Option<Self> {
            if Command::new("nft").arg("--version").output().is_err() {
                skip(test, "nft is not installed (apt-get install nftables)");
                return None;
            }
            let mut link = LinkSpec::default();
            link.set_list("rate=50mbit,delay=3ms,loss=3%").unwrap();
            let hop = Hop { forward: link.clone(), reverse: link };
            let (chain, emulator) = chain_of(test, &[hop.clone(), hop])?;
            let [client, server] = ["client", "server"].map(|name| Namespace::new(name).unwrap());
            for (end, node, net) in [(&client, &chain.hosts()[0], 1), (&server, &chain.hosts()[2], 3)] {
                for kind in ["all", "default"] {
                    end.sysctl(&format!("net.ipv6.conf.{kind}.disable_ipv6"), "0").unwrap();
                    node.sysctl(&format!("net.ipv6.conf.{kind}.disable_ipv6"), "0").unwrap();
                }
                let mac = |n| [2, 0, 0, 9, net, n];
                node.enter(|| Rtnetlink::open()?.add_veth("lan", mac(1), "eth", mac(2), end.descriptor())).unwrap().unwrap();
                ip(end, "link set lo up");
                for (host, device, number) in [(node, "lan", 1), (end, "eth", 2)] {
                    ip(host, &format!("addr add 192.168.{net}.{number}/24 dev {device}"));
                    ip(host, &format!("addr add fd77:{net}::{number}/64 dev {device} nodad"));
                    ip(host, &format!("link set {device} up"));
                }
                ip(end, &format!("route add default via 192.168.{net}.1"));
                ip(end, &format!("-6 route add default via fd77:{net}::1"));
                node.sysctl("net.ipv4.ip_forward", "1").unwrap();
                node.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
            }
            services(&chain.hosts()[2]);
            services(&server);
            let directory = tempfile::tempdir().unwrap();
            let keys = ["a", "b", "c"].map(|name| {
                std::fs::create_dir(directory.path().join(name)).unwrap();
                keygen(&directory.path().join(name), "key").1
            });
            Some(Self { chain, _emulator: emulator, client, server, directory, keys })
        }

        /// The file of a (0) or c (2).
        fn file(&self, n: usize, tcp: &str) -> String {
            let (own, far, letter) = (n + 1, 3 - n, if n == 0 { "c" } else { "a" });
            let calls = if n == 0 { "endpoint = \"10.77.0.2\"" } else { "endpoint = \"10.77.1.1\"" };
            format!(
                "[node]\nkey = \"key\"\naddresses = [\"10.9.0.{own}\", \"fd09::{own}\"]\nidle-timeout = \"5s\"\n\
                 [[neighbour]]\nname = \"b\"\nkey = \"{}\"\naddresses = [\"10.9.0.2\"]\n{calls}\n\
                 [[remote]]\nname = \"{letter}\"\nkey = \"{}\"\naddresses = [\"10.9.0.{far}\", \"fd09::{far}\"]\nprefixes = [\"192.168.{far}.0/24\", \"fd77:{far}::/64\"]\n\
                 [[route]]\nto = \"10.9.0.{far}\"\nvia = \"b\"\n[[route]]\nto = \"fd09::{far}\"\nvia = \"b\"\n\
                 [tun]\naddresses = [\"10.9.0.{own}/24\", \"fd09::{own}/64\"]\ntcp = \"{tcp}\"\n",
                self.keys[1],
                self.keys[2 - n],
            )
        }

        /// The nodes, running and linked.
        fn start(&self, tcp: [&str; 2]) -> [Node; 3] {
            let other = |name: &str, key: &str, n: usize| {
                format!("[[neighbour]]\nname = \"{name}\"\nkey = \"{key}\"\naddresses = [\"10.9.0.{n}\", \"fd09::{n}\"]\n")
            };
            let relay = "[node]\nkey = \"key\"\naddresses = [\"10.9.0.2\"]\nrelay = true\nidle-timeout = \"5s\"\n".to_owned()
                + &other("a", &self.keys[0], 1)
                + &other("c", &self.keys[2], 3);
            let hosts = self.chain.hosts();
            let directory = self.directory.path();
            let mut b = Node::start(directory, "b", &hosts[1], &relay);
            let mut a = Node::start(directory, "a", &hosts[0], &self.file(0, tcp[0]));
            let mut c = Node::start(directory, "c", &hosts[2], &self.file(2, tcp[1]));
            a.wait_for_session("b");
            c.wait_for_session("b");
            b.wait_for_session("a");
            [a, b, c]
        }
    }

    fn split<'a>(report: &'a Value, with: &str) -> &'a Value {
        &report["tunnel"]["nodes"][with]["split"]
    }

    fn table(host: &Namespace) -> String {
        let tables = String::from_utf8(run(host, "nft list tables").stdout).unwrap();
        tables.lines().filter(|line| line.contains("noctule_node_")).collect()
    }

    /// Rules of the routing for diverted packets.
    fn routing(host: &Namespace) -> usize {
        let rules = [run(host, "ip rule").stdout, run(host, "ip -6 rule").stdout].concat();
        String::from_utf8(rules).unwrap().lines().filter(|line| line.starts_with("5108:")).count()
    }

    /// What the echo says of where a connection from this host comes from; half of the connection ends before the other.
    fn asked(host: &Namespace, to: &str) -> std::io::Result<String> {
        let at = SocketAddr::new(to.parse::<IpAddr>().unwrap(), ECHO);
        let stream = tcp(host, &at.to_string())?;
        let content = vec![b'x'; 200_000];
        let mut writing = stream.try_clone()?;
        let sent = content.clone();
        let writer = std::thread::spawn(move || {
            writing.write_all(&sent)?;
            writing.shutdown(Shutdown::Write)
        });
        let (mut reader, mut line, mut rest) = (BufReader::new(stream), String::new(), Vec::new());
        reader.read_line(&mut line)?;
        reader.read_to_end(&mut rest)?;
        writer.join().unwrap()?;
        assert!(rest == content, "{} bytes came back after the end of what was sent", rest.len());
        Ok(line.trim().to_owned())
    }

    /// What comes of a connection of which the first byte is sent.
    fn outcome(host: &Namespace, to: &str, port: u16) -> std::io::Result<usize> {
        let mut stream = tcp(host, &SocketAddr::new(to.parse().unwrap(), port).to_string())?;
        let _ = stream.write_all(b"x");
        stream.read_to_end(&mut Vec::new())
    }

    #[test]
    fn connections_of_programs_and_clients_become_streams_and_tcp_tells_its_ends_the_same() {
        let Some(world) = World::new("TCP into a tunnel as streams") else { return };
        let [mut a, _b, mut c] = world.start(["split"; 2]);
        let [host_a, host_c] = [world.chain.hosts()[0].clone(), world.chain.hosts()[2].clone()];
        // The first one asks c whether it splits: the packet is repeated.
        assert_eq!(asked(&host_a, "10.9.0.3").unwrap(), "10.9.0.1", "{}\n{}", a.log(), c.log());
        let report = a.wait_for("a split connection that is over", |r| split(r, "c")["begun"] == 1 && split(r, "c")["open"] == 0);
        assert_eq!(split(&report, "c")["tcp"], "split");
        assert!(split(&report, "c")["sent_bytes"].as_u64().unwrap() >= 200_000, "{report:#}");
        let flows = report["tunnel"]["nodes"]["c"]["flows"].as_array().unwrap();
        assert!(flows.iter().all(|f| f["protocol"] != 6), "no TCP as packets: {flows:?}");

        // Programs and clients, to the node and to hosts behind it, both families: the target sees the client's own address.
        for (from, own) in [(&host_a, ["10.9.0.1", "fd09::1"]), (&world.client, ["192.168.1.2", "fd77:1::2"])] {
            for (to, own) in
                [("10.9.0.3", own[0]), ("192.168.3.1", own[0]), ("192.168.3.2", own[0]), ("fd09::3", own[1]), ("fd77:3::2", own[1])]
            {
                let seen = asked(from, to).unwrap_or_else(|e| panic!("{to}: {e}\n{}\n{}", a.log(), c.log()));
                assert_eq!(seen, own, "{to}");
            }
        }
        // And the other way round.
        assert_eq!(asked(&world.server, "192.168.1.1").err().map(|e| e.kind()), Some(ErrorKind::ConnectionReset), "nobody listens there");
        let report = c.status();
        assert_eq!(split(&report, "a")["tcp"], "split");
        // Nothing of all that was carried.
        assert_eq!(split(&a.status(), "c")["begun"].as_u64().unwrap(), 11 + 1, "{:#}", a.status());

        // What the target sends arrives whole, with its end; a refusal and a reset are resets.
        for host in [&host_a, &world.client] {
            assert_eq!(outcome(host, "192.168.3.2", SOURCE).unwrap(), SENT);
            for (to, port) in [("192.168.3.2", RESETS), ("10.9.0.3", RESETS), ("192.168.3.2", CLOSED), ("fd09::3", CLOSED)] {
                assert_eq!(outcome(host, to, port).unwrap_err().kind(), ErrorKind::ConnectionReset, "{to} {port}");
            }
        }
        a.wait_for("refusals", |r| split(r, "c")["refused"] == 5 && split(r, "c")["open"] == 0);
        assert!(a.log().contains("a connection was reset: connection refused"), "{}", a.log());

        // c dials nothing that it would not have delivered: its loopback, and sources that are not a's.
        ip(&host_a, "addr add 192.0.2.99/32 dev lo");
        let liar = host_a.command("curl").args(["-m", "5", "-s", "--interface", "192.0.2.99", "http://10.9.0.3:7000/"]).output().unwrap();
        assert!(!liar.status.success());
        a.wait_for("a denied source", |_| a_says(&world, "does not lie behind this node"));

        // Rules and routing are there for as long as the node; a kill leaves them, and the next start takes them over.
        assert!(!table(&host_a).is_empty() && routing(&host_a) == 2);
        a.kill();
        assert!(!table(&host_a).is_empty() && routing(&host_a) == 2, "killed");
        a.restart();
        a.wait_for_session("b");
        assert_eq!(asked(&world.client, "192.168.3.2").unwrap(), "192.168.1.2", "{}", a.log());
        a.kill();
        a.write(&world.file(0, "carry"));
        a.restart();
        a.wait_for_session("b");
        assert!(table(&host_a).is_empty() && routing(&host_a) == 0, "a node that carries needs none: {}", table(&host_a));
        c.terminate();
        assert!(table(&host_c).is_empty() && routing(&host_c) == 0, "it ended by itself");
    }

    fn a_says(world: &World, words: &str) -> bool {
        std::fs::read_to_string(world.directory.path().join("a/log")).unwrap().contains(words)
    }

    #[test]
    fn a_reload_switches_it_and_cuts_nothing_and_a_node_that_carries_is_told_apart() {
        let Some(world) = World::new("TCP as streams, switched by a reload") else { return };
        let [mut a, _b, mut c] = world.start(["split", "carry"]);
        // c carries: so does a towards it, and says so.
        assert_eq!(asked(&world.client, "192.168.3.2").unwrap(), "192.168.1.2", "{}", a.log());
        let report = a.status();
        assert_eq!((&split(&report, "c")["tcp"], &split(&report, "c")["begun"]), (&Value::from("carry"), &Value::from(0)), "{report:#}");
        assert!(a_says(&world, "TCP goes to it as packets: [tun] tcp is"), "{}", a.log());
        let reload = |node: &Node, file: String| {
            node.write(&file);
            let out = node.ask(&["reload"]);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        // A connection that is carried stays so.
        let carried = tcp(&world.client, &format!("192.168.3.2:{ECHO}")).unwrap();
        reload(&c, world.file(2, "split"));
        a.wait_for("streams towards c", |r| split(r, "c")["tcp"] == "split");
        let mut line = String::new();
        let mut carried = BufReader::new(carried);
        carried.read_line(&mut line).unwrap();
        assert_eq!(asked(&world.client, "192.168.3.2").unwrap(), "192.168.1.2");
        a.wait_for("a split connection", |r| split(r, "c")["begun"] == 1 && split(r, "c")["open"] == 0);
        there_and_back(carried.into_inner(), 300_000, || {});

        // One that is a stream stays so, whichever node is switched off.
        for node in [0, 2] {
            let mut stream = BufReader::new(tcp(&world.client, &format!("192.168.3.2:{ECHO}")).unwrap());
            stream.read_line(&mut String::new()).unwrap();
            let mut stream = stream.into_inner();
            reload(if node == 0 { &a } else { &c }, world.file(node, "carry"));
            a.wait_for("packets towards c", |r| split(r, "c")["tcp"] == "carry");
            let begun = split(&a.status(), "c")["begun"].clone();
            assert_eq!(asked(&world.client, "192.168.3.2").unwrap(), "192.168.1.2");
            assert_eq!(split(&a.status(), "c")["begun"], begun, "it was carried");
            stream.write_all(b"still here\n").unwrap();
            let mut back = [0; 11];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"still here\n");
            drop(stream);
            reload(if node == 0 { &a } else { &c }, world.file(node, "split"));
            a.wait_for("streams towards c", |r| split(r, "c")["tcp"] == "split");
        }
        // Another tool's flush is made good.
        let host_a = &world.chain.hosts()[0];
        run(host_a, "nft flush ruleset");
        until("the rules are put back", || !table(host_a).is_empty());

        // The far daemon is killed: what is open is reset, and it goes on once it is back.
        let stream = tcp(&world.client, &format!("192.168.3.2:{ECHO}")).unwrap();
        let mut stream = BufReader::new(stream);
        stream.read_line(&mut String::new()).unwrap();
        c.kill();
        c.restart();
        let ended = stream.read_to_end(&mut Vec::new());
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        until("c is back", || asked(&world.client, "192.168.3.2").is_ok());
    }

    #[test]
    fn what_a_killed_node_has_left_goes_at_the_next_start_even_without_its_routing() {
        let Some(world) = World::new("what a killed node leaves of split connections") else { return };
        let [mut a, _b, _c] = world.start(["split"; 2]);
        let host = &world.chain.hosts()[0];
        until("the rules are there", || !table(host).is_empty() && routing(host) == 2);
        a.kill();
        assert!(!table(host).is_empty(), "a node that is killed takes nothing away");
        ip(host, "rule del priority 5108");
        ip(host, "-6 rule del priority 5108");
        a.write(&world.file(0, "carry"));
        a.restart();
        a.status();
        assert_eq!(table(host), "");
    }

    /// One user's scan does not take all flows of a session, which packets need, too.
    #[test]
    fn connections_beyond_the_limit_of_a_node_are_reset_and_packets_go_on() {
        let Some(world) = World::new("the limit of split connections") else { return };
        let [mut a, _b, _c] = world.start(["split"; 2]);
        a.write(&world.file(0, "split").replace("tcp = \"split\"", "tcp = \"split\"\nmax-flows = 16"));
        assert!(a.ask(&["reload"]).status.success());
        assert_eq!(asked(&world.client, "192.168.3.2").unwrap(), "192.168.1.2");
        a.wait_for("streams towards c", |r| split(r, "c")["tcp"] == "split" && split(r, "c")["open"] == 0);
        let mut open = Vec::new();
        let stands = |stream: std::io::Result<TcpStream>| {
            let mut stream = BufReader::new(stream.ok()?);
            (stream.read_line(&mut String::new()).ok()? > 0).then_some(stream)
        };
        for _ in 0..24 {
            open.extend(stands(tcp(&world.client, &format!("192.168.3.2:{ECHO}"))));
        }
        assert_eq!(open.len(), 16, "{}", a.log());
        let out = run(&world.client, "ping -c 3 -i 0.2 -W 2 192.168.3.2");
        assert!(String::from_utf8_lossy(&out.stdout).contains(" 0% packet loss") || out.status.success(), "{out:?}");
        drop(open);
        until("places come back", || stands(tcp(&world.client, &format!("192.168.3.2:{ECHO}"))).is_some());
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What c answers to a request for a connection, over a session of its peer.
    async fn answer(session: &noctule::Session, target: &str, source: &str) -> Outcome {
        let options = noctule::FlowOptions { tag: split::TAG, ..noctule::FlowOptions::default() };
        let (mut send, mut recv) = session.open_bi(options).unwrap();
        let mut bytes = Vec::new();
        wire::Record::Connect { target: target.parse().unwrap(), source: Some(source.parse().unwrap()) }.emit(&mut bytes);
        send.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        loop {
            match wire::Record::parse(&answer) {
                Ok((wire::Record::Answer(answer), _)) => return answer.outcome,
                Err(wire::RecordError::Short) => answer.extend(recv.read_chunk(2000).await.unwrap().expect("an answer")),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_peer_reaches_only_what_its_packets_would() {
        let Some(world) = World::new("what a peer reaches by streams") else { return };
        let host = world.chain.hosts()[2].clone();
        let directory = world.directory.path();
        // It has no neighbour but a, which calls.
        let file = |tcp: &str| {
            let whole = world.file(2, tcp);
            let part = |from: &str, to: &str| &whole[whole.find(from).unwrap()..whole.find(to).unwrap()];
            let (head, a, tun) = (part("[node]", "[[neighbour]]"), part("[[remote]]", "[[route]]"), &whole[whole.find("[tun]").unwrap()..]);
            format!("{head}{}{tun}", a.replace("remote", "neighbour"))
        };
        let mut c = Node::start(directory, "c", &host, &file("split"));
        c.status();
        let key: noctule::PublicKey = world.keys[2].parse().unwrap();
        // Somebody at a, with a's key and a program of its own.
        let text = std::fs::read_to_string(directory.join("a/key")).unwrap();
        let secret: noctule::SecretKey = text.lines().rfind(|line| !line.is_empty()).unwrap().parse().unwrap();
        let asking = |cases: &[(&str, &str, Outcome)]| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = noctule::EndpointConfig::new(secret.clone());
                let endpoint = noctule::Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
                let session = endpoint.connect_early("127.0.0.1:4242".parse().unwrap(), Some(key)).await.unwrap();
                for (target, source, expected) in cases {
                    let got = tokio::time::timeout(PATIENCE, answer(&session, target, source)).await.expect("an answer in time");
                    assert_eq!(got, *expected, "{target} from {source}");
                }
                endpoint.close(0, "");
            });
        };
        let own = "10.9.0.1:5000";
        let cases = [
            ("10.9.0.3:7000", own, Outcome::Connected),
            ("192.168.3.2:7000", "192.168.1.77:1", Outcome::Connected),
            ("[fd77:3::2]:7000", "[fd77:1::9]:1", Outcome::Connected),
            ("10.9.0.3:7003", own, Outcome::Refused),
            // Packets to these would be dropped.
            ("127.0.0.1:7000", own, Outcome::Denied),
            ("[::1]:7000", "[fd09::1]:1", Outcome::Denied),
            ("[::ffff:127.0.0.1]:7000", own, Outcome::Denied),
            ("224.0.0.1:7000", own, Outcome::Denied),
            ("0.0.0.0:7000", own, Outcome::Denied),
            ("192.168.3.255:7000", own, Outcome::Unreachable),
            ("203.0.113.1:7000", own, Outcome::Unreachable),
            // Behind a third node, or nobody.
            ("10.9.0.77:7000", own, Outcome::Denied),
            // Somebody else's, c's own, of another family, and none.
            ("10.9.0.3:7000", "10.9.0.2:1", Outcome::Denied),
            ("10.9.0.3:7000", "10.9.0.3:1", Outcome::Denied),
            ("10.9.0.3:7000", "198.51.100.1:1", Outcome::Denied),
            ("10.9.0.3:7000", "[fd09::1]:1", Outcome::Denied),
            ("localhost:7000", own, Outcome::Failed),
        ];
        host.enter(|| asking(&cases)).unwrap();
        // Behind it lies everything, by c's file: still nobody speaks for c, or for the hosts beside it.
        c.write(&file("split").replace("prefixes = [\"192.168.1.0/24\"", "prefixes = [\"0.0.0.0/0\", \"::/0\", \"192.168.1.0/24\""));
        assert!(c.ask(&["reload"]).status.success());
        let cases = [
            ("10.9.0.3:7000", own, Outcome::Connected),
            ("10.9.0.3:7000", "203.0.113.9:1", Outcome::Connected),
            ("[fd09::3]:7000", "[fd77:3::1]:1", Outcome::Denied),
            ("[fd09::3]:7000", "[fd77:3::2]:1", Outcome::Denied),
            ("10.9.0.3:7000", "192.168.3.2:1", Outcome::Denied),
            ("10.9.0.3:7000", "192.168.3.1:1", Outcome::Denied),
        ];
        host.enter(|| asking(&cases)).unwrap();
        c.write(&file("split"));
        assert!(c.ask(&["reload"]).status.success());
        // A host that does not forward is no way to others.
        host.sysctl("net.ipv4.ip_forward", "0").unwrap();
        host.sysctl("net.ipv6.conf.all.forwarding", "0").unwrap();
        let cases = [
            ("10.9.0.3:7000", own, Outcome::Connected),
            ("192.168.3.1:7000", own, Outcome::Connected),
            ("192.168.3.2:7000", own, Outcome::Unreachable),
            ("[fd77:3::2]:7000", "[fd09::1]:1", Outcome::Unreachable),
        ];
        host.enter(|| asking(&cases)).unwrap();
        c.write(&file("carry"));
        assert!(c.ask(&["reload"]).status.success());
        host.enter(|| asking(&[("10.9.0.3:7000", own, Outcome::Denied)])).unwrap();
    }

    #[test]
    fn what_is_missing_is_told() {
        let Some(world) = World::new("TCP as streams without nft") else { return };
        let host = &world.chain.hosts()[0];
        let directory = world.directory.path().join("a");
        std::fs::write(directory.join("node.toml"), world.file(0, "split") + "[control]\nsocket = \"socket\"\n").unwrap();
        let start = |path: &str| {
            let mut command = host.command(env!("CARGO_BIN_EXE_noctule"));
            command.args(["node", "--config"]).arg(directory.join("node.toml")).env("PATH", path);
            let out = command.output().unwrap();
            (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
        };
        let (code, text) = start("/nowhere");
        assert!(code.is_some_and(|code| code != 0), "{text}");
        assert!(text.contains("the program nft is not in PATH") && text.contains("tcp = \"carry\""), "{text}");
        // The table of somebody else is left alone.
        let mut a = Node::start(world.directory.path(), "a", host, &world.file(0, "split"));
        a.status();
        let name = table(host).trim_start_matches("table ").to_owned();
        a.terminate();
        assert!(run(host, &format!("nft add table {name}")).status.success());
        let (code, text) = start(&std::env::var("PATH").unwrap());
        assert!(code.is_some_and(|c| c != 0) && text.contains("that noctule did not make"), "{text}");
        assert!(!table(host).is_empty(), "it is left");
    }
}
