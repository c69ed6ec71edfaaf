//! Three nodes in a row, each in a namespace, over emulated links that lose packets: IP traffic through their TUN devices, in real time.
//! Skipped loudly where namespaces or TUN are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::chain::Chain;
    use noctule_lab::net::emulator::Emulator;
    use noctule_lab::net::rtnetlink::Rtnetlink;
    use noctule_lab::scenario::Hop;
    use std::io::ErrorKind;
    use std::path::Path;

    /// `a - b - c`; `None`, after a notice, where this is not permitted.
    fn chain(test: &str) -> Option<(Chain, Emulator)> {
        let mut link = LinkSpec::default();
        link.set_list("rate=50mbit,delay=3ms,loss=3%").unwrap();
        let hop = Hop { forward: link.clone(), reverse: link };
        chain_of(test, &[hop.clone(), hop])
    }

    /// Files of a, b and c.
    fn files(directory: &Path) -> [String; 3] {
        let keys = ["a", "b", "c"].map(|name| {
            std::fs::create_dir(directory.join(name)).unwrap();
            keygen(&directory.join(name), "key").1
        });
        let node = |n: usize, more: &str| {
            format!(
                "[node]\nkey = \"key\"\naddresses = [\"10.9.0.{n}\", \"fd09::{n}\"]\n{more}\n[tun]\naddresses = [\"10.9.0.{n}/24\", \"fd09::{n}/64\"]\n"
            )
        };
        let other = |kind: &str, name: usize, more: &str| {
            let letter = ["a", "b", "c"][name - 1];
            format!(
                "[[{kind}]]\nname = \"{letter}\"\nkey = \"{}\"\naddresses = [\"10.9.0.{name}\", \"fd09::{name}\"]\n{more}\n",
                keys[name - 1]
            )
        };
        let routes = |n: usize| format!("[[route]]\nto = \"10.9.0.{n}\"\nvia = \"b\"\n[[route]]\nto = \"fd09::{n}\"\nvia = \"b\"\n");
        [
            node(1, &(other("neighbour", 2, "endpoint = \"10.77.0.2\"\nmtu = 1300") + &other("remote", 3, "") + &routes(3))),
            // a calls, c is called.
            node(2, &("relay = true\n".to_owned() + &other("neighbour", 1, "") + &other("neighbour", 3, "endpoint = \"10.77.1.2\""))),
            node(3, &(other("neighbour", 2, "") + &other("remote", 1, "") + &routes(1))),
        ]
    }

    #[test]
    fn ip_traffic_crosses_nodes_and_nobody_speaks_for_others() {
        let Some((chain, _emulator)) = chain("three nodes with TUN devices") else { return };
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let [a, b, c] = [chain.hosts()[0].clone(), chain.hosts()[1].clone(), chain.hosts()[2].clone()];
        let mut node_b = Node::start(directory.path(), "b", &b, &files[1]);
        let mut node_a = Node::start(directory.path(), "a", &a, &files[0]);
        let mut node_c = Node::start(directory.path(), "c", &c, &files[2]);
        node_a.wait_for_session("b");
        node_b.wait_for_session("c");
        node_c.wait_for_session("b");
        echo(&b, 7007);

        // Both families, datagrams and TCP, over 3 % loss.
        for (bind, to) in [("0.0.0.0:0", "10.9.0.2:7007"), ("[::]:0", "[fd09::2]:7007")] {
            let socket = udp(&a, bind);
            assert!(ping(&socket, to).is_some(), "{to} answers\n{}", node_a.log());
            there_and_back(tcp(&a, to).unwrap_or_else(|e| panic!("{to}: {e}")), 300_000, || {});
        }

        // And to c, which a reaches over b only: sealed from end to end, recoded by b.
        echo(&c, 7007);
        for (bind, to) in [("0.0.0.0:0", "10.9.0.3:7007"), ("[::]:0", "[fd09::3]:7007")] {
            let socket = udp(&a, bind);
            assert!(ping(&socket, to).is_some(), "{to} answers\n{}\n{}", node_a.log(), node_b.log());
            there_and_back(tcp(&a, to).unwrap_or_else(|e| panic!("{to}: {e}")), 300_000, || {});
        }
        assert_eq!(node_of(&node_a.status(), "c")["session"], "relayed");

        // What no node has is refused at once, and a packet that is too big for the path to b is answered.
        let error = tcp(&a, "10.9.0.77:7007").expect_err("nobody has this address");
        assert!(matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::ConnectionRefused), "{error}");
        let socket = udp(&a, "0.0.0.0:0");
        socket.connect("10.9.0.2:7007").unwrap();
        let mtu = dont_fragment(&socket);
        socket.send(&[0; 1320]).expect("within the device's MTU");
        let too_big = (0..50).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            socket.send(&[0; 1320]).err()
        });
        assert_eq!(too_big.and_then(|e| e.raw_os_error()), Some(libc::EMSGSIZE), "the kernel has learnt {mtu:?}");

        // A source that does not lie behind a is not delivered by b.
        a.enter(|| Rtnetlink::open().unwrap().add_address("lo", "192.0.2.99".parse().unwrap(), 32).unwrap()).unwrap();
        let liar = udp(&a, "192.0.2.99:0");
        liar.send_to(b"I am another", "10.9.0.2:7007").unwrap();
        node_b.wait_for("a refused packet", |report| report["tunnel"]["nodes"]["a"]["received_refused"].as_u64() >= Some(1));

        // A reload in mid-transfer drops nothing, a wrong file changes nothing.
        let stream = tcp(&a, "10.9.0.2:7007").unwrap();
        there_and_back(stream, 1_000_000, || {
            node_a.write(&files[0].replace("mtu = 1300", "prefixes = [\"198.51.100.0/24\"]"));
            let out = node_a.ask(&["reload"]);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            node_a.write(&files[0].replace("10.9.0.2\"", "10.9.0.1\""));
            let out = node_a.ask(&["reload"]);
            let text = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.code() == Some(2) && text.contains("belongs to this node"), "{text}");
        });
        let report = node_a.status();
        assert_eq!(node_of(&report, "b")["link"]["times_up"], 1, "the link stayed: {report:#}");

        // A node that is killed and started again is found again.
        node_b.kill();
        node_b.restart();
        node_b.wait_for_session("a");
        let socket = udp(&a, "0.0.0.0:0");
        assert!(ping(&socket, "10.9.0.2:7007").is_some(), "b is back\n{}", node_a.log());
        drop(node_c);
    }

    /// Between a and c are two relays, in one namespace, and the routes by both are equally good: flows take turns at them, and go on when one dies.
    #[test]
    fn flows_take_turns_at_routes_that_are_equally_good() {
        let Some((chain, _emulator)) = chain("two relays between two nodes with TUN devices") else { return };
        let directory = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            keygen(&directory.path().join(name), "key").1
        };
        let names = ["a", "left", "right", "c"];
        let keys = names.map(key);
        let other = |kind: &str, n: usize, more: &str| {
            format!("[[{kind}]]\nname = \"{}\"\nkey = \"{}\"\naddresses = [\"10.9.0.{}\"]\n{more}\n", names[n], keys[n], n + 1)
        };
        let end = |n: usize, host: &str| {
            let far = 3 - n;
            let by = |relay: usize| other("neighbour", relay, &format!("endpoint = \"{host}:{}\"", 4500 + relay));
            let route = |relay: usize| format!("[[route]]\nto = \"10.9.0.{}\"\nvia = \"{}\"\n", far + 1, names[relay]);
            let own = format!("[node]\nkey = \"key\"\naddresses = [\"10.9.0.{0}\"]\n[tun]\naddresses = [\"10.9.0.{0}/24\"]\n", n + 1);
            [own, by(1), by(2), other("remote", far, ""), route(1), route(2)].concat()
        };
        let relay = |n: usize| {
            let own =
                format!("[node]\nkey = \"key\"\naddresses = [\"10.9.0.{}\"]\nlisten = [\"0.0.0.0:{}\"]\nrelay = true\n", n + 1, 4500 + n);
            [own, other("neighbour", 0, ""), other("neighbour", 3, "")].concat()
        };
        let [a, b, c] = [chain.hosts()[0].clone(), chain.hosts()[1].clone(), chain.hosts()[2].clone()];
        let mut left = Node::start(directory.path(), "left", &b, &relay(1));
        let mut right = Node::start(directory.path(), "right", &b, &relay(2));
        let mut node_a = Node::start(directory.path(), "a", &a, &end(0, "10.77.0.2"));
        let mut node_c = Node::start(directory.path(), "c", &c, &end(3, "10.77.1.1"));
        for of in ["left", "right"] {
            node_a.wait_for_session(of);
            node_c.wait_for_session(of);
        }
        echo(&c, 7007);
        let sockets: Vec<_> = (0..4).map(|_| udp(&a, "0.0.0.0:0")).collect();
        for socket in &sockets {
            assert!(ping(socket, "10.9.0.4:7007").is_some(), "c answers\n{}", node_a.log());
        }
        let report = node_a.status();
        assert_eq!(node_of(&report, "c")["sessions"], 2, "{report:#}");
        let data = |node: &mut Node| {
            let flows = node.status()["relayed"].as_array().cloned().unwrap_or_default();
            flows.iter().filter(|f| f["source"] == "10.9.0.1" && f["index"].as_u64() > Some(0)).count()
        };
        assert_eq!((data(&mut left), data(&mut right)), (2, 2), "two of four flows each");
        right.kill();
        for socket in &sockets {
            assert!(ping(socket, "10.9.0.4:7007").is_some(), "c answers over the other relay\n{}", node_a.log());
        }
    }

    /// Sets "don't fragment" (IP_MTU_DISCOVER = IP_PMTUDISC_DO) and gives the path MTU that the kernel knows.
    fn dont_fragment(socket: &std::net::UdpSocket) -> std::io::Result<i32> {
        use std::os::fd::AsRawFd;
        let fd = socket.as_raw_fd();
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        let value: libc::c_int = libc::IP_PMTUDISC_DO;
        // SAFETY: a live integer and its size, on an open descriptor.
        if unsafe { libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, (&raw const value).cast(), size) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let (mut mtu, mut length) = (0 as libc::c_int, size);
        // SAFETY: as above; the kernel writes at most `length` bytes.
        if unsafe { libc::getsockopt(fd, libc::IPPROTO_IP, libc::IP_MTU, (&raw mut mtu).cast(), &raw mut length) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(mtu)
    }
}
