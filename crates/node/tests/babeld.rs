//! Four nodes in a ring, routes by babeld through the kernel's table: a link is cut, the daemon reroutes, the traffic goes on. In real time.
//! Skipped loudly where babeld is not installed or namespaces are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::net::privilege;
    use noctule_lab::net::rtnetlink::{LinkChange, Rtnetlink};
    use std::fs::File;
    use std::path::Path;
    use std::process::{Child, Command};

    /// The ring: a - b - d and a - c - d.
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const LINKS: [(usize, usize); 4] = [(0, 1), (1, 3), (0, 2), (2, 3)];
    /// The table that babeld writes and the nodes follow.
    const TABLE: u32 = 42;

    /// A routing daemon; ended when dropped.
    struct Babeld(Child);

    impl Drop for Babeld {
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

    fn babeld(host: &Namespace, directory: &Path, index: usize) -> Babeld {
        let own = directory.join(NAMES[index]);
        let links = LINKS.iter().enumerate().filter(|(_, (near, far))| [near, far].contains(&&index));
        let interfaces: String =
            links.map(|(i, _)| format!("interface {} type wired hello-interval 1 update-interval 2\n", device(i))).collect();
        let file = format!(
            "export-table {TABLE}\nskip-kernel-setup true\nstate-file {dir}/babel-state\npid-file {dir}/babel.pid\n\
             redistribute local ip 10.9.0.0/24 ge 32 metric 0\nredistribute local deny\nredistribute deny\n{interfaces}",
            dir = own.display()
        );
        std::fs::write(own.join("babeld.conf"), file).unwrap();
        let log = File::create(own.join("babeld.log")).unwrap();
        let mut command = host.command("babeld");
        command.arg("-c").arg(own.join("babeld.conf")).stdout(log.try_clone().unwrap()).stderr(log);
        Babeld(command.spawn().expect("babeld starts"))
    }

    fn file(index: usize, keys: &[String]) -> String {
        let mut file = format!(
            "[node]\nkey = \"key\"\naddresses = [\"10.9.0.{n}\"]\nrelay = true\n\n[kernel-routes]\ntable = {TABLE}\n\n[tun]\naddresses = [\"10.9.0.{n}/32\"]\n",
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

    #[test]
    fn a_routing_daemon_moves_traffic_when_a_link_is_cut() {
        const TEST: &str = "routes by babeld";
        if Command::new("babeld").arg("-V").output().is_err() {
            return skip(TEST, "babeld is not installed (apt-get install babeld)");
        }
        if let Err(error) = privilege::acquire() {
            return skip(TEST, &error.to_string());
        }
        if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
            return skip(TEST, &format!("/dev/net/tun: {error}"));
        }
        let directory = tempfile::tempdir().unwrap();
        let keys: Vec<String> = NAMES
            .iter()
            .map(|name| {
                std::fs::create_dir(directory.path().join(name)).unwrap();
                keygen(&directory.path().join(name), "key").1
            })
            .collect();
        let hosts = ring();
        let mut nodes: Vec<Node> =
            (0..NAMES.len()).rev().map(|i| Node::start(directory.path(), NAMES[i], &hosts[i], &file(i, &keys))).rev().collect();
        // The overlay's addresses are on the TUN devices: only then has babeld something to announce.
        nodes.iter_mut().for_each(|node| drop(node.status()));
        let _daemons: Vec<Babeld> = (0..NAMES.len()).map(|i| babeld(&hosts[i], directory.path(), i)).collect();

        let way_to_d = |report: &serde_json::Value| -> Option<String> {
            let routes = report["routes"].as_array()?;
            let route = routes.iter().find(|r| r["to"] == "10.9.0.4/32" && r["origin"] == "kernel" && r["usable"] == true)?;
            route["via"].as_str().map(str::to_owned)
        };
        let report = nodes[0].wait_for("a way to d", |report| way_to_d(report).is_some());
        let first = way_to_d(&report).unwrap();
        echo(&hosts[3], 7007);
        let socket = udp(&hosts[0], "0.0.0.0:0");
        assert!(ping(&socket, "10.9.0.4:7007").is_some(), "d answers over {first}\n{}", nodes[0].log());

        // Cut the link to the first hop in mid-transfer: both the relay and babeld's neighbour are gone.
        let cut = if first == "b" { device(0) } else { device(2) };
        let stream = tcp(&hosts[0], "10.9.0.4:7007").unwrap_or_else(|e| panic!("{e}\n{}", nodes[0].log()));
        let mut second = None;
        there_and_back(stream, 2_000_000, || {
            let output = hosts[0].command("ip").args(["link", "set", &cut, "down"]).output().expect("ip from iproute2");
            assert!(output.status.success());
            let report = nodes[0].wait_for("another way to d", |report| way_to_d(report).is_some_and(|via| via != first));
            second = way_to_d(&report);
        });
        assert!(second.is_some() && second != Some(first), "{second:?}");
        assert!(ping(&socket, "10.9.0.4:7007").is_some(), "d answers over {second:?}\n{}", nodes[0].log());
    }
}
