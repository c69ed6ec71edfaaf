//! What the kernel holds for a node's tunnel: put back when others take it away, and never a path for the node's own packets. Two nodes, each in a namespace.
//! Skipped loudly where namespaces or TUN are not permitted.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::scenario::Hop;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn ip(host: &Namespace, words: &str) -> String {
        let output = host.command("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn until(what: &str, node: &Node, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}\n{}", node.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Files of a, which calls, and b. `a_prefixes`: what a says lies behind b; `b_prefixes`: what b says lies behind a.
    fn files(directory: &Path, a_prefixes: &str, b_prefixes: &str) -> [String; 2] {
        let keys = ["a", "b"].map(|name| {
            std::fs::create_dir(directory.join(name)).unwrap();
            keygen(&directory.join(name), "key").1
        });
        let file = |me: usize, other: usize, more: &str| {
            format!(
                "[node]\nkey = \"key\"\naddresses = [\"10.9.0.{me}\", \"fd09::{me}\"]\n[[neighbour]]\nname = \"{}\"\nkey = \"{}\"\naddresses = [\"10.9.0.{other}\", \"fd09::{other}\"]\n{more}\n[tun]\naddresses = [\"10.9.0.{me}/24\", \"fd09::{me}/64\"]\n",
                ["a", "b"][other - 1],
                keys[other - 1]
            )
        };
        [file(1, 2, &format!("endpoint = \"10.77.0.2\"\nprefixes = [{a_prefixes}]")), file(2, 1, &format!("prefixes = [{b_prefixes}]"))]
    }

    fn hop() -> Hop {
        let mut link = LinkSpec::default();
        link.set_list("rate=50mbit,delay=3ms").unwrap();
        Hop { forward: link.clone(), reverse: link }
    }

    #[test]
    fn what_others_take_away_is_put_back_and_a_lost_device_ends_the_node() {
        let Some((chain, _emulator)) = chain_of("a tunnel's kernel state", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let [file_a, file_b] = files(directory.path(), "\"192.168.50.0/24\", \"fd50::/64\"", "");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        let _node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node = Node::start(directory.path(), "a", &a, &file_a);
        node.wait_for_session("b");
        ip(&b, "addr add 192.168.50.1/32 dev lo");
        echo(&b, 7007);
        // Nothing leads there while it is away.
        let into = |to: &str| {
            let found = a.command("ip").args(["route", "get", to]).output().unwrap();
            String::from_utf8_lossy(&found.stdout).contains("dev noctule0")
        };
        let addresses = || ip(&a, "addr show dev noctule0");
        let is_whole = || {
            let addresses = addresses();
            into("192.168.50.1") && into("fd50::1") && addresses.contains("10.9.0.1/24") && addresses.contains("fd09::1/64")
        };
        until("routes and addresses at first", &node, is_whole);
        let table =
            ip(&a, "rule").lines().find_map(|l| l.strip_prefix("5111:")?.split("lookup ").nth(1).map(|t| t.trim().to_owned())).unwrap();
        let others: &[&str] = &[
            "link set noctule0 down",
            "route flush table {} proto 110",
            "-6 route flush table {} proto 110",
            "addr del 10.9.0.1/24 dev noctule0",
            "-6 addr flush dev noctule0 scope global",
            "rule del pref 5111",
            "rule del pref 5110",
            "-6 rule del pref 5111",
            "link set noctule0 mtu 1300",
        ];
        for words in others {
            ip(&a, &words.replace("{}", &table));
            until(&format!("after {words}"), &node, || {
                is_whole() && ip(&a, "rule").contains("5110:") && ip(&a, "link show dev noctule0").contains("mtu 1380")
            });
        }
        let socket = udp(&a, "0.0.0.0:0");
        assert!(ping(&socket, "192.168.50.1:7007").is_some(), "traffic flows\n{}", node.log());
        // A network that the host itself is attached to is not the tunnel's, even one that comes later.
        ip(&a, "link add other type veth peer name its-end");
        ip(&a, "link set other up");
        ip(&a, "link set its-end up");
        ip(&a, "addr add 192.168.50.129/25 dev other");
        until("an attached network", &node, || !into("192.168.50.130") && into("192.168.50.1"));
        ip(&a, "link del other");
        until("the tunnel's again", &node, || into("192.168.50.130"));
        // A reload compares with the running node and with the kernel.
        let reload = |node: &Node| String::from_utf8_lossy(&node.ask(&["reload"]).stdout).into_owned();
        assert!(reload(&node).contains("nothing to change"), "{}", reload(&node));
        node.write(&file_a.replace("key = \"key\"\n", "key = \"key\"\nlisten = \"0.0.0.0:4299\"\n"));
        assert!(reload(&node).contains("[node] listen changed"));
        node.write(&file_a.replace("fd50::/64", "fd51::/64"));
        let said = reload(&node);
        assert!(said.contains("\"b\" changed") && said.contains("fd51::/64") && !said.contains("listen"), "{said}");
        assert!(into("fd51::1"));
        // Nothing is left of a node that ends.
        node.terminate();
        assert!(!ip(&a, "rule").contains("5110:") && !ip(&a, "-6 rule").contains("5111:"), "{}", ip(&a, "rule"));
        node.restart();
        node.wait_for_session("b");
        ip(&a, "link del noctule0");
        let code = node.ending().expect("a node without its device ends");
        assert_ne!(code, 0);
        assert!(node.log().contains("the device noctule0 is gone"), "{}", node.log());
    }

    #[test]
    fn the_whole_internet_behind_a_neighbour_and_the_far_node_inside_its_own_network() {
        let Some((chain, _emulator)) = chain_of("own packets and the tunnel", &[hop()]) else { return };
        let directory = tempfile::tempdir().unwrap();
        // a sends everything by b, and b believes that the very network in which it finds a lies behind a.
        let [file_a, file_b] = files(directory.path(), "\"0.0.0.0/0\", \"::/0\"", "\"10.77.0.0/16\"");
        let [a, b] = [chain.hosts()[0].clone(), chain.hosts()[1].clone()];
        // Neither is attached to the other's network: nothing but the default route leads to the neighbour.
        for (host, far) in [(&a, "10.77.0.2"), (&b, "10.77.0.1")] {
            let found = ip(host, &format!("route get {far}"));
            let device = found.split("dev ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
            ip(host, &format!("route replace default dev {device}"));
            for line in ip(host, &format!("route show dev {device} proto kernel")).lines() {
                ip(host, &format!("route del {} dev {device}", line.split(' ').next().unwrap()));
            }
        }
        let mut node_b = Node::start(directory.path(), "b", &b, &file_b);
        let mut node_a = Node::start(directory.path(), "a", &a, &file_a);
        node_a.wait_for_session("b");
        node_b.wait_for_session("a");
        ip(&b, "addr add 198.51.100.1/32 dev lo");
        ip(&b, "addr add 2001:db8::1/128 dev lo");
        echo(&b, 7007);
        for (bind, to) in [("0.0.0.0:0", "198.51.100.1:7007"), ("[::]:0", "[2001:db8::1]:7007")] {
            let socket = udp(&a, bind);
            assert!(ping(&socket, to).is_some(), "{to} is reached by the tunnel\n{}", node_a.log());
        }
        // From the node's own port the host's default route leads, and the tunnel from any other.
        let from = |port: u16| ip(&a, &format!("route get 203.0.113.9 ipproto udp sport {port}"));
        assert!(from(5000).contains("dev noctule0") && !from(4242).contains("dev noctule0"), "{}{}", from(5000), from(4242));
        let report = node_a.status();
        assert_eq!(node_of(&report, "b")["link"]["times_up"], 1, "the link stayed: {report:#}");
    }
}
