//! Transfers by the built command whose ends change their address, or die.

#[cfg(target_os = "linux")]
mod network;
#[cfg(not(target_os = "linux"))]
mod support;

#[cfg(target_os = "linux")]
mod linux {
    use super::network::*;
    use noctule_lab::link::LinkSpec;
    use noctule_lab::net::chain::{BackendChoice, Chain, LEFT, RIGHT};
    use noctule_lab::net::namespace::Namespace;
    use noctule_lab::net::rtnetlink::Rtnetlink;
    use noctule_lab::scenario::{Hop, Ip};
    use std::io::{BufRead, BufReader, Read};
    use std::net::{IpAddr, Ipv6Addr};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const SIZE: usize = 12 << 20;

    /// A process that is ended when dropped.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn command(host: Option<&Namespace>) -> Command {
        let mut command = match host {
            Some(host) => host.command(env!("CARGO_BIN_EXE_noctule")),
            None => Command::new(env!("CARGO_BIN_EXE_noctule")),
        };
        command.env("XDG_CONFIG_HOME", "/dev/null/nowhere").env_remove("HOME").stdin(Stdio::null());
        command
    }

    /// Starts `recv` on an address, and waits until it listens: the process, and its address with the port.
    fn receive(host: Option<&Namespace>, bind: &str, dir: &Path) -> (Running, String) {
        let mut c = command(host);
        c.args(["recv", "--json", "--anyone", "--bind", bind, "--key"]).arg(dir.join("key")).arg("--into").arg(dir.join("into"));
        let mut child = c.stdout(Stdio::piped()).spawn().expect("recv starts");
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let first: serde_json::Value = serde_json::from_str(&line).expect("says that it listens");
        std::thread::spawn(move || out.lines().for_each(drop));
        (Running(child), first["address"].as_str().unwrap().to_owned())
    }

    struct World {
        _dir: tempfile::TempDir,
        dir: PathBuf,
        key: String,
        content: Vec<u8>,
    }

    impl World {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let dir = temp.path().to_owned();
            let (_, key) = keygen(&dir, "key");
            let content: Vec<u8> = (0..SIZE).map(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect();
            std::fs::write(dir.join("file"), &content).unwrap();
            std::fs::create_dir(dir.join("into")).unwrap();
            Self { _dir: temp, dir, key, content }
        }

        fn send(&self, host: Option<&Namespace>, to: &str, more: &[&str]) -> Running {
            let mut c = command(host);
            c.arg("send").arg(self.dir.join("file")).args([to, "--peer-key", &self.key]).args(more);
            Running(c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("send starts"))
        }

        fn assert_whole(&self) {
            assert!(std::fs::read(self.dir.join("into/file")).unwrap() == self.content, "every byte is the same");
        }
    }

    /// Waits for the end: exit code, standard error, and the time from the call on.
    fn end_of(running: &mut Running) -> (Option<i32>, String, Duration) {
        let began = Instant::now();
        let mut child = loop {
            if let Some(status) = running.0.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "send ends");
            std::thread::sleep(Duration::from_millis(20));
        };
        let took = began.elapsed();
        let mut text = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (std::mem::take(&mut child).code(), text, took)
    }

    /// The sender loses its only address in mid-transfer, and gets another a quarter of a second later.
    fn sender_moves(version: Ip) {
        let name = "a sender that moves";
        let mut link = LinkSpec::default();
        link.set_list("rate=30mbit,delay=10ms,loss=2%").unwrap();
        let hop = Hop { forward: link.clone(), reverse: link };
        let mut chain = match Chain::build(&[hop], version, BackendChoice::Emulator, 5) {
            Ok(chain) => chain,
            Err(error) if error.is_not_permitted() => return skip(name, &error.to_string()),
            Err(error) => panic!("{error}"),
        };
        let _emulator = chain.start(Default::default()).unwrap().expect("the emulator was asked for");
        let (near, far) = (chain.first().clone(), chain.last().clone());
        let (old, to) = (chain.first_address(), chain.last_address());
        let (new, prefix, any): (IpAddr, u8, &str) = match old {
            IpAddr::V4(_) => ("10.88.0.9".parse().unwrap(), 32, "0.0.0.0:0"),
            IpAddr::V6(_) => (Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 9).into(), 128, "[::]:0"),
        };
        let world = World::new();
        let (_receiver, bound) = receive(Some(&far), any, &world.dir);
        let port = bound.rsplit_once(':').unwrap().1.to_owned();
        let to = std::net::SocketAddr::new(to, port.parse().unwrap());
        let mut sender = world.send(Some(&near), &to.to_string(), &[]);
        // 12 MiB at 30 Mbit/s take some 3.5 s: this is in the middle.
        std::thread::sleep(Duration::from_millis(1200));
        assert!(sender.0.try_wait().unwrap().is_none(), "the address changes in mid-transfer");
        far.enter(|| Rtnetlink::open().unwrap().add_route(new, prefix, None, LEFT).unwrap()).unwrap();
        near.enter(|| Rtnetlink::open().unwrap().remove_address(RIGHT, old, prefix).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(250));
        near.enter(|| {
            let mut netlink = Rtnetlink::open().unwrap();
            netlink.add_address(RIGHT, new, prefix).unwrap();
            // With the last IPv4 address its routes went too.
            let _ = netlink.add_route(to.ip(), prefix, None, RIGHT);
        })
        .unwrap();
        let (code, text, took) = end_of(&mut sender);
        assert_eq!(code, Some(0), "{text}");
        eprintln!("{old} became {new}; the rest took {took:?}");
        world.assert_whole();
    }

    #[test]
    fn a_sender_whose_ipv4_address_is_replaced_in_mid_transfer_goes_on() {
        sender_moves(Ip::V4);
    }

    #[test]
    fn a_sender_whose_ipv6_address_is_replaced_in_mid_transfer_goes_on() {
        sender_moves(Ip::V6);
    }

    #[test]
    fn a_sender_hears_soon_that_the_receiver_was_killed() {
        let world = World::new();
        let (receiver, address) = receive(None, "127.0.0.1:0", &world.dir);
        let mut sender = world.send(None, &address, &["--limit-rate", "20mbit"]);
        std::thread::sleep(Duration::from_millis(800));
        drop(receiver); // SIGKILL
        let (code, text, took) = end_of(&mut sender);
        assert!(code == Some(7) && text.contains("nobody listens"), "{code:?} {text}");
        eprintln!("killed: told after {took:?}");
        // Told by ICMP: the idle timeout and the circuit breaker would take 30 s.
        assert!(took < Duration::from_secs(15), "{took:?}");
    }

    #[test]
    fn a_receiver_hears_soon_that_a_sender_on_its_host_was_killed() {
        let world = World::new();
        let (receiver, sender) = in_mid_transfer(&world, &[]);
        drop(sender); // SIGKILL
        let took = told_of_a_loss(&world, "nobody listens");
        drop(receiver);
        eprintln!("killed: told after {took:?}");
        assert!(took < Duration::from_secs(15), "{took:?}");
    }

    /// How long the receiver took to tell that its sender has gone, for the reason `why`. It then waits for another try.
    fn told_of_a_loss(world: &World, why: &str) -> Duration {
        let began = Instant::now();
        loop {
            let told = std::fs::read_to_string(world.dir.join("receiver.jsonl")).unwrap();
            if told.lines().any(|line| line.contains("\"code\":7") && line.contains(why)) {
                return began.elapsed();
            }
            assert!(began.elapsed() < PATIENCE, "{told}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops a process, or lets it go on.
    fn signal(to: &Running, name: &str) {
        assert!(Command::new("kill").args([name, &to.0.id().to_string()]).status().unwrap().success());
    }

    /// A receiver of one transfer on this host, and its sender in the middle of it.
    fn in_mid_transfer(world: &World, more: &[&str]) -> (Running, Running) {
        let mut c = command(None);
        c.args(["recv", "--json", "--anyone", "--once", "--bind", "127.0.0.1:0", "--key"]).arg(world.dir.join("key")).args(more);
        let mut child = c.arg("--into").arg(world.dir.join("into")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut receiver = Running(child);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let first: serde_json::Value = serde_json::from_str(&line).unwrap();
        let log = std::fs::File::create(world.dir.join("receiver.jsonl")).unwrap();
        std::thread::spawn(move || std::io::copy(&mut out, &mut { log }));
        let sender = world.send(None, first["address"].as_str().unwrap(), &["--limit-rate", "20mbit"]);
        std::thread::sleep(Duration::from_millis(800));
        assert!(receiver.0.try_wait().unwrap().is_none(), "in mid-transfer");
        (receiver, sender)
    }

    /// The same, with the sender stopped (SIGSTOP).
    fn sender_that_stands_still(world: &World, more: &[&str]) -> (Running, Running) {
        let (receiver, sender) = in_mid_transfer(world, more);
        signal(&sender, "-STOP");
        (receiver, sender)
    }

    #[test]
    fn silence_of_the_other_side_is_told_and_borne() {
        let world = World::new();
        let (mut receiver, mut sender) = sender_that_stands_still(&world, &[]);
        let told = |what: &str| std::fs::read_to_string(world.dir.join("receiver.jsonl")).unwrap().contains(what);
        let began = Instant::now();
        while !told("\"silent\"") {
            assert!(began.elapsed() < Duration::from_secs(25), "the receiver says that it hears nothing");
            std::thread::sleep(Duration::from_millis(50));
        }
        eprintln!("told after {:?}", began.elapsed());
        // One that only receives asks, too: the keep-alive of an idle session would come after ten seconds, and the word five later.
        assert!(began.elapsed() < Duration::from_secs(13), "{:?}", began.elapsed());
        signal(&sender, "-CONT");
        let (code, text, _) = end_of(&mut sender);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(end_of(&mut receiver).0, Some(0));
        assert!(told("\"heard\""), "and that it hears again");
        world.assert_whole();
    }

    #[test]
    fn silence_is_borne_as_long_as_was_said() {
        let world = World::new();
        let (receiver, sender) = sender_that_stands_still(&world, &["--timeout", "3s"]);
        let took = told_of_a_loss(&world, "nothing heard for 3 s");
        drop(receiver);
        // Without --timeout it would be 30 s.
        assert!(took < Duration::from_secs(20), "{took:?}");
        signal(&sender, "-CONT");
    }

    #[test]
    fn a_sender_hears_soon_that_the_receiver_was_started_anew_and_can_go_on_with_the_new_one() {
        let world = World::new();
        let (receiver, address) = receive(None, "127.0.0.1:0", &world.dir);
        let mut sender = world.send(None, &address, &["--limit-rate", "20mbit"]);
        std::thread::sleep(Duration::from_millis(800));
        drop(receiver);
        let (_receiver, again) = receive(None, &address, &world.dir);
        assert_eq!(again, address);
        let (code, text, took) = end_of(&mut sender);
        assert!(code == Some(7) && text.contains("started anew"), "{code:?} {text}");
        eprintln!("started anew: told after {took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        let (code, text, _) = end_of(&mut world.send(None, &address, &[]));
        assert_eq!(code, Some(0), "{text}");
        world.assert_whole();
    }
}
