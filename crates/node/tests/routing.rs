//! Four nodes in a ring, routes by a routing daemon through the kernel's table: a link is cut, the daemon reroutes, the traffic goes on. In real
//! time. Skipped loudly where the daemon is not installed or namespaces are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::net::privilege;
    use noctule_lab::net::rtnetlink::{LinkChange, Rtnetlink};
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// The ring: a - b - d and a - c - d.
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const LINKS: [(usize, usize); 4] = [(0, 1), (1, 3), (0, 2), (2, 3)];
    /// The table that babeld writes and the nodes follow, so that the host's own routes into the TUN device stay.
    const TABLE: u32 = 42;
    /// The main one, which FRR's zebra writes.
    const MAIN: u32 = 254;
    const FRR: &str = "/usr/lib/frr";

    /// A routing daemon; ended when dropped.
    struct Daemon(Child);

    impl Drop for Daemon {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn device(link: usize) -> String {
        format!("link{link}")
    }

    fn address(link: usize, end: usize) -> String {
        format!("10.88.{link}.{}", end + 1)
    }

    /// Hosts joined by veth pairs.
    fn ring() -> Vec<Namespace> {
        let hosts: Vec<Namespace> = NAMES.iter().map(|name| Namespace::new(name).unwrap()).collect();
        for host in &hosts {
            host.enter(|| Rtnetlink::open()?.change_link("lo", LinkChange { up: true, ..LinkChange::default() })).unwrap().unwrap();
        }
        for (index, (near, far)) in LINKS.into_iter().enumerate() {
            let mac = |end: u8| [2, 0, 0, 0, index as u8, end];
            let name = device(index);
            hosts[near]
                .enter(|| Rtnetlink::open()?.add_veth(&name, mac(0), &name, mac(1), hosts[far].descriptor()))
                .unwrap()
                .unwrap_or_else(|e| panic!("{e}"));
            for (end, host) in [near, far].into_iter().enumerate() {
                let address = address(index, end).parse().unwrap();
                hosts[host]
                    .enter(|| {
                        let mut netlink = Rtnetlink::open()?;
                        netlink.change_link(&name, LinkChange { up: true, ..LinkChange::default() })?;
                        netlink.add_address(&name, address, 24)
                    })
                    .unwrap()
                    .unwrap();
            }
        }
        hosts
    }

    fn babeld(host: &Namespace, directory: &Path, index: usize) -> Daemon {
        let own = directory.join(NAMES[index]);
        let links = LINKS.iter().enumerate().filter(|(_, (near, far))| [near, far].contains(&&index));
        let interfaces: String =
            links.map(|(i, _)| format!("interface {} type wired hello-interval 1 update-interval 2\n", device(i))).collect();
        let file = format!(
            "export-table {TABLE}\nskip-kernel-setup true\nstate-file {dir}/babel-state\npid-file {dir}/babel.pid\n\
             redistribute local ip 10.9.0.0/24 ge 32\nredistribute local deny\nredistribute deny\n{interfaces}",
            dir = own.display()
        );
        std::fs::write(own.join("babeld.conf"), file).unwrap();
        let log = File::create(own.join("babeld.log")).unwrap();
        let mut command = host.command("babeld");
        command.arg("-c").arg(own.join("babeld.conf")).stdout(log.try_clone().unwrap()).stderr(log);
        Daemon(command.spawn().expect("babeld starts"))
    }

    /// A node's file, without its TUN device and the ends that are attached to it.
    fn file(index: usize, keys: &[String], table: u32) -> String {
        let mut file = format!(
            "[node]\nkey = \"key\"\naddresses = [\"10.9.0.{n}\"]\nrelay = true\n\n[kernel-routes]\ntable = {table}\n",
            n = index + 1
        );
        for (other, key) in keys.iter().enumerate().filter(|(other, _)| *other != index) {
            let link = LINKS.iter().position(|l| *l == (index, other) || *l == (other, index));
            let kind = if link.is_some() { "neighbour" } else { "remote" };
            file += &format!("[[{kind}]]\nname = \"{}\"\nkey = \"{key}\"\naddresses = [\"10.9.0.{}\"]\n", NAMES[other], other + 1);
            // The lower one calls.
            if let Some(link) = link.filter(|_| index < other) {
                file += &format!("endpoint = \"{}\"\n", address(link, 1));
            }
        }
        file
    }

    /// `None`, after a notice, where this cannot be tested.
    fn keys(test: &str, program: &str, package: &str, directory: &Path) -> Option<Vec<String>> {
        if Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            skip(test, &format!("{program} is not installed (apt-get install {package})"));
            return None;
        }
        if let Err(error) = privilege::acquire() {
            skip(test, &error.to_string());
            return None;
        }
        let name_keys = NAMES.iter().map(|name| {
            std::fs::create_dir(directory.join(name)).unwrap();
            keygen(&directory.join(name), "key").1
        });
        Some(name_keys.collect())
    }

    fn set_down(host: &Namespace, device: &str) {
        let output = host.command("ip").args(["link", "set", device, "down"]).output().expect("ip from iproute2");
        assert!(output.status.success());
    }

    /// Over which neighbour the kernel's routes lead to a node or an end.
    fn route_to(to: &str, report: &serde_json::Value) -> Option<String> {
        let routes = report["routes"].as_array()?;
        let route = routes.iter().find(|r| r["to"] == to && r["origin"] == "kernel" && r["usable"] == true)?;
        route["via"].as_str().map(str::to_owned)
    }

    /// The device of a's link to this neighbour.
    fn link_to(via: &str) -> String {
        if via == "b" { device(0) } else { device(2) }
    }

    #[test]
    #[ignore = "needs babeld: cargo test -p noctule-node --test routing -- --ignored"]
    fn babeld_moves_ip_traffic_when_a_link_is_cut() {
        const TEST: &str = "routes by babeld";
        let directory = tempfile::tempdir().unwrap();
        let Some(keys) = keys(TEST, "babeld", "babeld", directory.path()) else { return };
        if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
            return skip(TEST, &format!("/dev/net/tun: {error}"));
        }
        let hosts = ring();
        let tun = |i: usize| format!("[tun]\naddresses = [\"10.9.0.{}/32\"]\n", i + 1);
        let start = |i: usize| Node::start(directory.path(), NAMES[i], &hosts[i], &(file(i, &keys, TABLE) + &tun(i)));
        let mut nodes: Vec<Node> = (0..NAMES.len()).rev().map(start).rev().collect();
        // The overlay's addresses are on the TUN devices: only then has babeld something to announce.
        nodes.iter_mut().for_each(|node| drop(node.status()));
        let _daemons: Vec<Daemon> = (0..NAMES.len()).map(|i| babeld(&hosts[i], directory.path(), i)).collect();

        let way_to_d = |report: &serde_json::Value| route_to("10.9.0.4/32", report);
        let report = nodes[0].wait_for("a way to d", |report| way_to_d(report).is_some());
        let first = way_to_d(&report).unwrap();
        echo(&hosts[3], 7007);
        let socket = udp(&hosts[0], "0.0.0.0:0");
        assert!(ping(&socket, "10.9.0.4:7007").is_some(), "d answers over {first}\n{}", nodes[0].log());

        // Cut the link to the first hop in mid-transfer: both the relay and babeld's neighbour are gone.
        let stream = tcp(&hosts[0], "10.9.0.4:7007").unwrap_or_else(|e| panic!("{e}\n{}", nodes[0].log()));
        let mut second = None;
        there_and_back(stream, 2_000_000, || {
            set_down(&hosts[0], &link_to(&first));
            let report = nodes[0].wait_for("another way to d", |report| way_to_d(report).is_some_and(|via| via != first));
            second = way_to_d(&report);
        });
        assert!(second.is_some() && second != Some(first), "{second:?}");
        assert!(ping(&socket, "10.9.0.4:7007").is_some(), "d answers over {second:?}\n{}", nodes[0].log());
    }

    /// OSPF by FRR: zebra writes the main table, ospfd computes the routes.
    fn frr(host: &Namespace, directory: &Path, index: usize) -> [Daemon; 2] {
        // Its daemons run as a user of their own.
        let own = directory.join(NAMES[index]).join("frr");
        std::fs::create_dir(&own).unwrap();
        for (path, mode) in [(directory, 0o711), (own.parent().unwrap(), 0o711), (&own, 0o777)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let links = LINKS.iter().enumerate().filter(|(_, (near, far))| [near, far].contains(&&index));
        let interfaces: String = links
            .map(|(i, _)| {
                format!("interface {}\n ip ospf network point-to-point\n ip ospf hello-interval 1\n ip ospf dead-interval 3\n", device(i))
            })
            .collect();
        let ospf = format!(
            "{interfaces}router ospf\n ospf router-id 10.9.0.{}\n timers throttle spf 10 50 200\n network 10.88.0.0/16 area 0\n network 10.9.0.0/24 area 0\n",
            index + 1
        );
        std::fs::write(own.join("ospfd.conf"), ospf).unwrap();
        std::fs::write(own.join("zebra.conf"), "").unwrap();
        ["zebra", "ospfd"].map(|name| {
            let log = File::create(own.join(name).with_extension("log")).unwrap();
            let mut command = host.command(format!("{FRR}/{name}"));
            command.args(["-P", "0", "--log", "stdout", "-f"]).arg(own.join(name).with_extension("conf"));
            command.arg("-i").arg(own.join(name).with_extension("pid")).arg("-z").arg(own.join("zserv")).arg("--vty_socket").arg(&own);
            let daemon = Daemon(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("FRR starts"));
            let deadline = Instant::now() + PATIENCE;
            // ospfd does not find a zebra that comes later for some seconds.
            while name == "zebra" && !own.join("zserv").exists() {
                assert!(Instant::now() < deadline, "zebra does not start: {}", std::fs::read_to_string(own.join("zebra.log")).unwrap());
                std::thread::sleep(Duration::from_millis(20));
            }
            daemon
        })
    }

    #[test]
    #[ignore = "needs FRR: cargo test -p noctule-node --test routing -- --ignored"]
    fn frr_moves_a_transfer_between_attached_ends_when_a_link_is_cut() {
        const TEST: &str = "routes by FRR";
        let directory = tempfile::tempdir().unwrap();
        let Some(keys) = keys(TEST, &format!("{FRR}/zebra"), "frr", directory.path()) else { return };
        let hosts = ring();
        // The loopback devices have the overlay's addresses, those of the two ends as well: OSPF announces them as host routes.
        let (sender, sender_key) = keygen(directory.path(), "sender");
        let (receiver, receiver_key) = keygen(directory.path(), "receiver");
        let ends = [(0, "10.9.0.11", &sender_key), (3, "10.9.0.14", &receiver_key)];
        let add = |host: usize, address: &str| {
            let output = hosts[host].command("ip").args(["addr", "add", &format!("{address}/32"), "dev", "lo"]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        (0..NAMES.len()).for_each(|i| add(i, &format!("10.9.0.{}", i + 1)));
        let mut files: Vec<String> = (0..NAMES.len()).map(|i| file(i, &keys, MAIN)).collect();
        for (at, address, key) in ends {
            add(at, address);
            files[at] += &format!("[[neighbour]]\nname = \"end\"\nkey = \"{key}\"\naddresses = [\"{address}\"]\n");
        }
        let mut nodes: Vec<Node> =
            (0..NAMES.len()).rev().map(|i| Node::start(directory.path(), NAMES[i], &hosts[i], &files[i])).rev().collect();
        nodes.iter_mut().for_each(|node| drop(node.status()));
        let _daemons: Vec<[Daemon; 2]> = (0..NAMES.len()).map(|i| frr(&hosts[i], directory.path(), i)).collect();
        let way_there = |report: &serde_json::Value| route_to("10.9.0.14/32", report);
        let report = nodes[0].wait_for("a way to the receiver", |report| way_there(report).is_some());
        let first = way_there(&report).unwrap();
        nodes[3].wait_for("a way back", |report| route_to("10.9.0.11/32", report).is_some());

        let attached = |host: usize, address: &str, key: &Path, words: &[&str]| {
            let mut command = hosts[host].command(env!("CARGO_BIN_EXE_noctule"));
            command.args(words).args(["--via", "127.0.0.1", "--via-key", &keys[host], "--address", address, "--key"]).arg(key);
            command.stdin(Stdio::null());
            command
        };
        let into = directory.path().join("into");
        std::fs::create_dir(&into).unwrap();
        let content: Vec<u8> = (0..4_000_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let source = directory.path().join("file");
        std::fs::write(&source, &content).unwrap();
        let mut receiving = attached(3, "10.9.0.14", &receiver, &["recv", "--anyone", "--into", into.to_str().unwrap()]);
        let _receiving = Daemon(receiving.stderr(File::create(directory.path().join("recv.log")).unwrap()).spawn().unwrap());
        nodes[3].wait_for_session("end");
        let log = directory.path().join("send.log");
        let words = ["send", source.to_str().unwrap(), "10.9.0.14", "--peer-key", &receiver_key, "--limit-rate", "8mbit"];
        let mut sending = attached(0, "10.9.0.11", &sender, &words);
        let mut sending = Daemon(sending.stderr(File::create(&log).unwrap()).spawn().unwrap());
        nodes[0].wait_for("the transfer", |report| report["relayed"].as_array().is_some_and(|flows| !flows.is_empty()));
        std::thread::sleep(Duration::from_millis(500));
        assert!(sending.0.try_wait().unwrap().is_none(), "it is under way");
        set_down(&hosts[0], &link_to(&first));
        let report = nodes[0].wait_for("another way", |report| way_there(report).is_some_and(|via| via != first));
        assert!(way_there(&report).is_some_and(|second| second != first));
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = sending.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the transfer did not go on\n{}", nodes[0].log());
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(status.success(), "{status}: {}\n{}", std::fs::read_to_string(&log).unwrap(), nodes[0].log());
        assert!(std::fs::read(into.join("file")).unwrap() == content, "every byte is the same");
    }
}
