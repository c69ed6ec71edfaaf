//! Interception with real rules of the kernel: a client, a router and a server, each in a namespace. The targets say where a connection comes from: from
//! the server itself if it went by the proxy. Skipped loudly where namespaces are not permitted or nft is not installed.

#[cfg(target_os = "linux")]
mod network;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::net::privilege;
    use noctule_lab::net::rtnetlink::Rtnetlink;
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::path::Path;
    use std::process::{Child, Command, Output, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Targets: of nobody in the real internet (RFC 5737, RFC 3849).
    const TARGETS: [&str; 2] = ["198.51.100.1", "2001:db8::1"];
    const PORT: u16 = 7000;
    const EXCLUDED: u16 = 7001;

    struct World {
        client: Namespace,
        router: Namespace,
        server: Namespace,
        key: String,
        proxies: Vec<Proxy>,
    }

    /// A command that prints events; ended when dropped.
    struct Proxy {
        child: Child,
        events: mpsc::Receiver<serde_json::Value>,
        said: mpsc::Receiver<String>,
    }

    impl Proxy {
        fn start(mut command: Command) -> Self {
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let (out, events) = mpsc::channel();
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(out.send(serde_json::from_str(&line).unwrap()))));
            let lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let (out, said) = mpsc::channel();
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(out.send(line))));
            Self { child, events, said }
        }

        fn event(&self, kind: &str) -> serde_json::Value {
            loop {
                let event = self.events.recv_timeout(PATIENCE);
                let event = event.unwrap_or_else(|_| panic!("no {kind}: {:?}", self.said.try_iter().collect::<Vec<_>>()));
                if event["event"] == kind {
                    return event;
                }
            }
        }

        /// Waits until it says so on standard error.
        fn says(&self, words: &str) {
            let mut all = Vec::new();
            while let Ok(line) = self.said.recv_timeout(PATIENCE) {
                if line.contains(words) {
                    return;
                }
                all.push(line);
            }
            panic!("it does not say {words:?}: {all:#?}");
        }

        fn end(&mut self, signal: Signal) {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
            self.child.wait().unwrap();
        }
    }

    impl Drop for Proxy {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Target services: each says where a connection or a datagram comes from, and then sends back what it gets.
    fn targets(host: &Namespace) {
        for (address, port) in TARGETS.iter().flat_map(|a| [PORT, EXCLUDED].map(|port| (*a, port))) {
            let at = SocketAddr::new(address.parse().unwrap(), port);
            let (tcp, udp) = host.enter(|| (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap())).unwrap();
            std::thread::spawn(move || {
                for mut stream in tcp.incoming().flatten() {
                    std::thread::spawn(move || {
                        let _ = writeln!(stream, "{}", stream.peer_addr().unwrap().ip());
                        let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
                        let _ = stream.shutdown(Shutdown::Write);
                    });
                }
            });
            std::thread::spawn(move || {
                let mut buffer = [0; 2048];
                while let Ok((_, from)) = udp.recv_from(&mut buffer) {
                    let _ = udp.send_to(from.ip().to_string().as_bytes(), from);
                }
            });
        }
    }

    impl World {
        /// `None`, after a notice, where this cannot be tested.
        fn new(test: &str) -> Option<Self> {
            if let Err(error) = privilege::acquire() {
                skip(test, &error.to_string());
                return None;
            }
            if Command::new("nft").arg("--version").output().is_err() {
                skip(test, "nft is not installed (apt-get install nftables)");
                return None;
            }
            let [client, router, server] = ["client", "router", "server"].map(|name| Namespace::new(name).unwrap());
            for host in [&client, &router, &server] {
                for kind in ["all", "default"] {
                    host.sysctl(&format!("net.ipv6.conf.{kind}.disable_ipv6"), "0").unwrap();
                }
                ip(host, "link set lo up");
            }
            let mac = |n| [2, 0, 0, 0, 9, n];
            client.enter(|| Rtnetlink::open()?.add_veth("eth", mac(1), "lan", mac(2), router.descriptor())).unwrap().unwrap();
            router.enter(|| Rtnetlink::open()?.add_veth("wan", mac(3), "back", mac(4), server.descriptor())).unwrap().unwrap();
            for (host, device, net, end) in
                [(&client, "eth", 0, 2), (&router, "lan", 0, 1), (&router, "wan", 1, 1), (&server, "back", 1, 2)]
            {
                ip(host, &format!("addr add 10.77.{net}.{end}/24 dev {device}"));
                ip(host, &format!("addr add fd77:{net}::{end}/64 dev {device} nodad"));
                ip(host, &format!("link set {device} up"));
            }
            ip(&client, "route add default via 10.77.0.1");
            ip(&client, "-6 route add default via fd77:0::1");
            ip(&router, "route add default via 10.77.1.2");
            ip(&router, "-6 route add default via fd77:1::2");
            ip(&server, "route add 10.77.0.0/24 via 10.77.1.1");
            ip(&server, "-6 route add fd77:0::/64 via fd77:1::1");
            router.sysctl("net.ipv4.ip_forward", "1").unwrap();
            router.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
            ip(&server, "addr add 198.51.100.1/32 dev lo");
            ip(&server, "addr add 2001:db8::1/128 dev lo nodad");
            targets(&server);
            let mut world = Self { client, router, server, key: String::new(), proxies: Vec::new() };
            let mut command = world.server.command(env!("CARGO_BIN_EXE_noctule"));
            command.args(["proxy", "serve", "--json", "--anyone", "--allow-private", "--bind", "10.77.1.2:4242"]);
            let serving = Proxy::start(settled(command));
            world.key = serving.event("listening")["public_key"].as_str().unwrap().to_owned();
            world.proxies.push(serving);
            Some(world)
        }

        fn command(&self, words: &str) -> Command {
            let mut command = settled(self.router.command(env!("CARGO_BIN_EXE_noctule")));
            command.args(["proxy", "10.77.1.2:4242", "--peer-key", &self.key, "--timeout", "3s"]).args(words.split(' '));
            command
        }

        /// A proxy on the router that intercepts.
        fn proxy(&self, words: &str) -> Proxy {
            let proxy = Proxy::start(self.command(&format!("--json {words}")));
            proxy.event("listening");
            proxy
        }

        fn table(&self) -> bool {
            run(&self.router, "nft list table inet noctule_proxy").status.success()
        }

        fn rules(&self) -> String {
            let v4 = run(&self.router, "ip rule");
            let v6 = run(&self.router, "ip -6 rule");
            String::from_utf8([v4.stdout, v6.stdout].concat()).unwrap()
        }
    }

    fn settled(mut command: Command) -> Command {
        command.env("XDG_CONFIG_HOME", "/dev/null/nowhere").env_remove("HOME");
        command
    }

    /// What a target says of where a connection from this host comes from.
    fn asked(host: &Namespace, to: &str, port: u16) -> std::io::Result<String> {
        let at = SocketAddr::new(to.parse().unwrap(), port);
        let stream = host.enter(|| TcpStream::connect_timeout(&at, PATIENCE)).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let content = vec![b'x'; 300_000];
        let mut writing = stream.try_clone()?;
        let writer = std::thread::spawn(move || {
            writing.write_all(&vec![b'x'; 300_000])?;
            writing.shutdown(Shutdown::Write)
        });
        let (mut reader, mut line, mut rest) = (BufReader::new(stream), String::new(), Vec::new());
        let read = reader.read_line(&mut line).and_then(|_| reader.read_to_end(&mut rest));
        // The system tells of a reset once, to the first call that asks.
        writer.join().unwrap().map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::NotConnected => ErrorKind::ConnectionReset.into(),
            _ => error,
        })?;
        read?;
        assert!(rest == content, "{} bytes came back after the end of what was sent", rest.len());
        Ok(line.trim().to_owned())
    }

    /// The same of a datagram, whose answer has to come from the target's own address.
    fn asked_by_datagram(host: &Namespace, to: &str, port: u16) -> Option<String> {
        let at = SocketAddr::new(to.parse().unwrap(), port);
        let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = udp(host, any);
        // Takes answers from there only.
        socket.connect(at).unwrap();
        let mut buffer = [0; 2048];
        for _ in 0..20 {
            let _ = socket.send(b"which address?");
            if let Ok(len) = socket.recv(&mut buffer) {
                return Some(String::from_utf8_lossy(&buffer[..len]).into_owned());
            }
        }
        None
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// By the proxy it comes from the server's own address.
    fn is_by_proxy(source: &str, target: &str) -> bool {
        source == target
    }

    #[test]
    fn programs_of_the_host_itself_are_intercepted_and_nothing_is_left_behind() {
        let Some(world) = World::new("interception of own programs") else { return };
        let direct = ["10.77.1.1", "fd77:1::1"];
        for by in ["tproxy", "redirect"] {
            let words = format!("--intercept own --intercept-tcp {by} --intercept-udp tproxy --exclude port:{EXCLUDED}");
            let mut proxy = world.proxy(&words);
            for (target, own) in TARGETS.into_iter().zip(direct) {
                assert!(is_by_proxy(&asked(&world.router, target, PORT).unwrap(), target), "{by} {target}");
                assert_eq!(asked(&world.router, target, EXCLUDED).unwrap(), own, "{by}: what is excluded goes by itself");
                assert!(is_by_proxy(&asked_by_datagram(&world.router, target, PORT).unwrap(), target), "{by} {target} UDP");
                assert_eq!(asked_by_datagram(&world.router, target, EXCLUDED).unwrap(), own, "{by} UDP");
                // Refused there: reset here.
                let refused = asked(&world.router, target, 9).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionReset, "{by} {target}");
            }
            // The server itself is left alone.
            assert_eq!(asked(&world.router, "10.77.1.2", 9).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            // Nothing may connect to the port itself.
            let at = SocketAddr::from(([127, 0, 0, 1], 4243));
            let mut stream = world.router.enter(|| TcpStream::connect(at).unwrap()).unwrap();
            assert!(stream.read(&mut [0; 1]).is_err(), "reset");
            proxy.says("the port of the interception itself");
            // Another one has to ask first.
            let out = world.command("--intercept own --intercept-port 4244").output().unwrap();
            fails(&out, 10, "another noctule proxy intercepts");
            // Killed: nothing passes, until the next one takes the rules over.
            proxy.end(Signal::KILL);
            assert!(world.table());
            assert_eq!(asked(&world.router, TARGETS[0], PORT).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{by}: fails closed");
            // Nor while a start fails.
            let mut command = settled(world.router.command(env!("CARGO_BIN_EXE_noctule")));
            command.args(["proxy", "10.77.1.2:9", "--peer-key", &world.key, "--timeout", "1s"]).args(words.split(' '));
            fails(&command.output().unwrap(), 6, "the rules of a killed proxy");
            assert_eq!(asked(&world.router, TARGETS[0], PORT).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{by}: still closed");
            // Nor in between, when a start succeeds.
            let mut next = Proxy::start(world.command(&format!("--json {words}")));
            let is_up = AtomicBool::new(false);
            let (router, up) = (&world.router, &is_up);
            std::thread::scope(|scope| {
                let beside = scope.spawn(move || {
                    let ask = || {
                        // Few enough that no source port comes again while the system remembers it.
                        std::thread::sleep(Duration::from_millis(5));
                        asked(router, TARGETS[0], PORT).unwrap_or_else(|_| TARGETS[0].to_owned())
                    };
                    std::iter::repeat_with(ask).take_while(|_| !up.load(Ordering::Relaxed)).find(|source| !is_by_proxy(source, TARGETS[0]))
                });
                next.says("the rules of a killed proxy");
                next.event("listening");
                up.store(true, Ordering::Relaxed);
                assert_eq!(beside.join().unwrap(), None, "{by}: a connection beside the proxy");
            });
            assert!(is_by_proxy(&asked(&world.router, TARGETS[1], PORT).unwrap(), TARGETS[1]));
            // Another program flushes the host's rules: put back within seconds.
            if by == "tproxy" {
                assert!(run(&world.router, "nft flush ruleset").status.success());
                until("the rules are put back", || world.table());
            }
            // Ended in order.
            next.end(Signal::TERM);
            assert!(!world.table() && !world.rules().contains("5109:"), "{}", world.rules());
            assert_eq!(asked(&world.router, TARGETS[0], PORT).unwrap(), direct[0]);
        }
    }

    #[test]
    fn what_fails_closed_is_looked_after_while_the_server_is_away() {
        let Some(mut world) = World::new("interception without its server") else { return };
        let proxy = world.proxy("--intercept own");
        world.proxies.clear();
        assert_eq!(proxy.event("session")["up"], false);
        assert!(world.table());
        assert!(run(&world.router, "nft flush ruleset").status.success());
        until("the rules are put back", || world.table());
        assert!(asked(&world.router, TARGETS[0], PORT).ok().as_deref() != Some("10.77.1.1"), "what is diverted does not pass by");
    }

    #[test]
    fn what_fails_open_goes_by_itself_once_the_proxy_is_killed_or_the_server_gone() {
        let Some(mut world) = World::new("interception that fails open") else { return };
        let mut proxy = world.proxy("--intercept own --intercept-udp tproxy --fail open --exclude user:12345 --exclude private");
        assert!(is_by_proxy(&asked(&world.router, TARGETS[0], PORT).unwrap(), TARGETS[0]));
        proxy.end(Signal::KILL);
        until("the table ends with its owner", || !world.table());
        assert_eq!(asked(&world.router, TARGETS[0], PORT).unwrap(), "10.77.1.1");
        assert!(world.rules().contains("5109:"), "the routing of marked packets is left, and harms nobody");
        let proxy = world.proxy("--intercept own --fail open");
        assert!(is_by_proxy(&asked(&world.router, TARGETS[1], PORT).unwrap(), TARGETS[1]));
        // The server is gone.
        world.proxies.clear();
        assert_eq!(proxy.event("session")["up"], false);
        until("the table goes with the session", || !world.table());
        assert_eq!(asked(&world.router, TARGETS[1], PORT).unwrap(), "fd77:1::1");
        drop(proxy);
        let out = settled(world.router.command(env!("CARGO_BIN_EXE_noctule"))).args(["proxy", "rules", "--remove"]).output().unwrap();
        assert!(out.status.success() && !world.rules().contains("5109:"), "{}", String::from_utf8_lossy(&out.stderr));
    }

    #[test]
    fn clients_of_a_router_are_intercepted_and_its_own_programs_are_not() {
        let Some(world) = World::new("interception of a router's clients") else { return };
        let direct = ["10.77.0.2", "fd77::2"];
        for by in ["tproxy", "redirect"] {
            let words = format!("--intercept clients:lan --intercept-tcp {by} --intercept-udp tproxy --exclude port:{EXCLUDED}");
            let mut proxy = world.proxy(&words);
            for (target, own) in TARGETS.into_iter().zip(direct) {
                assert!(is_by_proxy(&asked(&world.client, target, PORT).unwrap(), target), "{by} {target}");
                assert_eq!(asked(&world.client, target, EXCLUDED).unwrap(), own, "{by}");
                assert!(is_by_proxy(&asked_by_datagram(&world.client, target, PORT).unwrap(), target), "{by} {target} UDP");
                assert_eq!(asked_by_datagram(&world.client, target, EXCLUDED).unwrap(), own, "{by} UDP");
                assert_eq!(asked(&world.client, target, 9).unwrap_err().kind(), ErrorKind::ConnectionReset, "{by} {target}");
            }
            assert_eq!(asked(&world.router, TARGETS[0], PORT).unwrap(), "10.77.1.1", "the router's own");
            proxy.end(Signal::KILL);
            assert_eq!(asked(&world.client, TARGETS[0], PORT).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{by}: fails closed");
            let out = settled(world.router.command(env!("CARGO_BIN_EXE_noctule"))).args(["proxy", "rules", "--remove"]).output().unwrap();
            assert!(out.status.success() && !world.table(), "{}", String::from_utf8_lossy(&out.stderr));
            assert_eq!(asked(&world.client, TARGETS[0], PORT).unwrap(), direct[0]);
        }
    }

    /// What a server sends to targets is not taken in by a proxy of the same host, which would send it back to the server.
    #[test]
    fn a_server_on_the_same_host_is_left_alone() {
        let Some(world) = World::new("a server beside interception") else { return };
        let mut command = settled(world.router.command(env!("CARGO_BIN_EXE_noctule")));
        command.args(["proxy", "serve", "--json", "--anyone", "--allow-private", "--bind", "127.0.0.1:4300"]);
        let serving = Proxy::start(command);
        let key = serving.event("listening")["public_key"].as_str().unwrap().to_owned();
        let mut command = settled(world.router.command(env!("CARGO_BIN_EXE_noctule")));
        command.args(["proxy", "127.0.0.1:4300", "--json", "--peer-key", &key, "--intercept", "own", "--intercept-udp", "tproxy"]);
        let proxy = Proxy::start(command);
        proxy.event("listening");
        for (target, own) in TARGETS.into_iter().zip(["10.77.1.1", "fd77:1::1"]) {
            assert_eq!(asked(&world.router, target, PORT).unwrap(), own);
            assert_eq!(asked_by_datagram(&world.router, target, PORT).unwrap(), own);
        }
    }

    #[test]
    fn rules_for_iptables_do_the_same() {
        const TEST: &str = "interception by iptables";
        let Some(world) = World::new(TEST) else { return };
        if Command::new("iptables").arg("-V").output().is_err() {
            return skip(TEST, "iptables is not installed (apt-get install iptables)");
        }
        for by in ["tproxy", "redirect"] {
            let words =
                format!("--intercept own --intercept clients:lan --intercept-tcp {by} --intercept-udp tproxy --exclude port:{EXCLUDED}");
            let mut command = noctule();
            let printed = command.args(["proxy", "rules", "--iptables", "10.77.1.2"]).args(words.split(' ')).output().unwrap();
            let script = String::from_utf8(printed.stdout).unwrap();
            let shell = |script: &str| {
                let out = world.router.command("sh").args(["-ec", script]).output().unwrap();
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            };
            shell(&script);
            let mut proxy = world.proxy(&format!("{words} --no-rules"));
            assert!(!world.table());
            for host in [&world.router, &world.client] {
                for target in TARGETS {
                    assert!(is_by_proxy(&asked(host, target, PORT).unwrap(), target), "{by} {target}");
                    assert!(is_by_proxy(&asked_by_datagram(host, target, PORT).unwrap(), target), "{by} {target} UDP");
                    assert!(!is_by_proxy(&asked(host, target, EXCLUDED).unwrap(), target), "{by} {target}");
                }
            }
            proxy.end(Signal::TERM);
            let removal: String = script
                .lines()
                .skip_while(|line| !line.starts_with("# To take it away"))
                .skip(1)
                .map(|line| line[2..].to_owned() + "\n")
                .collect();
            shell(&removal);
            assert_eq!(asked(&world.client, TARGETS[0], PORT).unwrap(), "10.77.0.2");
        }
    }

    fn fails(out: &Output, code: i32, words: &str) {
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{text}");
        assert!(text.contains(words), "{text:?} does not say {words:?}");
    }

    #[test]
    fn what_stands_in_the_way_is_told() {
        let Some(world) = World::new("obstacles of interception") else { return };
        let out = world.command("--intercept own").env("PATH", "/nonexistent").output().unwrap();
        fails(&out, 1, "the program nft, which is not in PATH");
        assert!(run(&world.router, "nft add table inet noctule_proxy").status.success());
        let out = world.command("--intercept own").output().unwrap();
        fails(&out, 10, "a table inet noctule_proxy that noctule did not make");
        assert!(world.table(), "it is still there");
        assert!(run(&world.router, "nft delete table inet noctule_proxy").status.success());
        let _taken = world.router.enter(|| TcpListener::bind("127.0.0.1:4243").unwrap()).unwrap();
        let out = world.command("--intercept own").output().unwrap();
        fails(&out, 10, "--intercept-port");
        // A group that is not there: nothing is left.
        let out = world.command("--intercept own --intercept-port 4244 --exclude cgroup:no/such/group").output().unwrap();
        let (code, words) = match Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            true => (2, "no such control group"),
            false => (1, "nft does not take the rules"),
        };
        fails(&out, code, words);
        assert!(!world.table() && !world.rules().contains("5109:"));
        let out = world.command("--intercept own --intercept-port 4244 --exclude cgroup:no/such/group --fail open").output().unwrap();
        fails(&out, code, words);
        assert!(!world.table() && !world.rules().contains("5109:"));
        // Without any rights.
        let mut command = settled(world.router.command("unshare"));
        command.args(["-U", env!("CARGO_BIN_EXE_noctule"), "proxy", "10.77.1.2:4242", "--peer-key", &world.key, "--intercept", "own"]);
        fails(&command.output().unwrap(), 1, "CAP_NET_ADMIN");
        let mut command = noctule();
        fails(&command.args(["proxy", "rules"]).output().unwrap(), 2, "--intercept own");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("proxy.toml");
        std::fs::write(&file, "host = \"hill\"\nintercept = \"own\"\n\nexclude = [\"port:22\", \"port:x\"]\n").unwrap();
        let out = noctule().args(["proxy", "--check", "--config"]).arg(&file).output().unwrap();
        fails(&out, 2, "proxy.toml:4: ");
        // What a start would refuse is wrong in a file, too.
        for (text, words) in [
            ("host = \"hill\"\nintercept = \"own\"\nintercept-tcp = \"no\"\n", "nothing to intercept"),
            ("host = \"hill\"\nintercept = []\n", "nothing to listen for"),
            ("dynamic = \"1080\"\n", "a host is missing"),
        ] {
            std::fs::write(&file, text).unwrap();
            fails(&noctule().args(["proxy", "--check", "--config"]).arg(&file).output().unwrap(), 2, words);
        }
        let mut command = noctule();
        fails(&command.args(["proxy", "rules", "--intercept", "own", "--fail", "open"]).output().unwrap(), 2, "--fail open");
        assert!(!world.client.name().is_empty());
    }
}
