//! A node file's neighbours and addresses, with real processes on loopback: several addresses to listen on, and a pre-shared key for one neighbour alone.

mod support;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{Kill, NOCTULE, keygen, noctule, start_node};

/// Bound of every wait: nothing takes nearly as long, so only a hang fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node: its directory, its key, its process.
struct Node {
    directory: PathBuf,
    key: String,
    child: Option<Kill>,
}

impl Node {
    fn new(dir: &Path, name: &str) -> Self {
        let directory = dir.join(name);
        fs::create_dir(&directory).unwrap();
        let (_, key) = keygen(&directory, "key");
        Self { directory, key, child: None }
    }

    fn write(&self, listen: &str, more: &str) {
        let head = format!("[node]\nkey = \"key\"\nlisten = {listen}\n");
        fs::write(self.directory.join("node.toml"), format!("{head}{more}\n[control]\nsocket = \"socket\"\n")).unwrap();
    }

    fn start(&mut self, listen: &str, more: &str) {
        self.write(listen, more);
        self.child = Some(start_node(Path::new(NOCTULE), &self.directory));
    }

    fn ask(&self, words: &[&str]) -> String {
        let out = noctule().args(words).arg("--socket").arg(self.directory.join("socket")).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// What its report says of another node.
    fn sees(&self, name: &str) -> serde_json::Value {
        let report: serde_json::Value = serde_json::from_str(&self.ask(&["status", "--json"])).unwrap_or_default();
        let nodes = report["nodes"].as_array().cloned().unwrap_or_default();
        nodes.into_iter().find(|n| n["name"] == name).unwrap_or_default()
    }

    fn has_session(&self, with: &str) -> bool {
        self.sees(with)["session"].is_string()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

fn wait(what: &str, nodes: &[&Node], mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: {}", nodes.iter().map(|n| n.log()).collect::<Vec<_>>().join("\n---\n"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn neighbour(name: &str, key: &str, more: &str) -> String {
    format!("[[neighbour]]\nname = \"{name}\"\nkey = \"{key}\"\n{more}\n")
}

/// A UDP port of this address that is free now. Other programs on this host do not ask for particular ports.
fn port(ip: &str) -> u16 {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn a_node_listens_on_several_addresses_and_answers_from_the_one_that_was_called() {
    let dir = tempfile::tempdir().unwrap();
    let [mut hub, mut one, mut two] = ["hub", "one", "two"].map(|name| Node::new(dir.path(), name));
    let at = ["127.0.0.2", "127.0.0.3"].map(|ip| format!("{ip}:{}", port(ip)));
    let both = [neighbour("one", &one.key, ""), neighbour("two", &two.key, "")].concat();
    hub.start(&format!("[\"{}\", \"{}\"]", at[0], at[1]), &both);
    // Both ends listen on 127.0.0.1. The kernel would choose 127.0.0.1 as the source of answers, not the hub's address that was called.
    one.start("\"127.0.0.1:0\"", &neighbour("hub", &hub.key, &format!("endpoint = \"{}\"", at[0])));
    two.start("\"127.0.0.1:0\"", &neighbour("hub", &hub.key, &format!("endpoint = \"{}\"", at[1])));
    wait("sessions by both addresses", &[&hub, &one, &two], || {
        hub.has_session("one") && hub.has_session("two") && one.has_session("hub") && two.has_session("hub")
    });
    let shown = hub.ask(&["status"]);
    assert!(shown.contains(&format!("listening on {}, {}", at[0], at[1])), "{shown}");
}

#[test]
fn a_neighbour_with_a_pre_shared_key_of_its_own_is_linked_by_it_alone_and_a_reload_takes_another() {
    let dir = tempfile::tempdir().unwrap();
    let [mut hub, mut one, mut two] = ["hub", "one", "two"].map(|name| Node::new(dir.path(), name));
    for (file, byte) in [("first", 1), ("second", 2)] {
        let file = dir.path().join(file);
        fs::write(&file, noctule::SharedKey::from_bytes([byte; 32]).to_text()).unwrap();
        // A key file that other users may read is refused.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let at = format!("127.0.0.1:{}", port("127.0.0.1"));
    let at_hub = |psk: &str| [neighbour("one", &one.key, psk), neighbour("two", &two.key, "")].concat();
    let (first, second) = (at_hub("psk = \"../first\""), at_hub("psk = \"../second\""));
    hub.start(&format!("\"{at}\""), &first);
    let call = |psk: &str| neighbour("hub", &hub.key, &format!("endpoint = \"{at}\"\n{psk}"));
    let (with, without) = (call("psk = \"../second\""), call(""));
    // A neighbour without a psk is served without one; one with another psk is refused.
    one.start("\"127.0.0.1:0\"", &with);
    two.start("\"127.0.0.1:0\"", &without);
    wait("a session without a key", &[&hub, &two], || hub.has_session("two"));
    wait("trouble", &[&one], || one.log().contains("do both have the same psk?"));
    assert!(hub.sees("one")["link"].is_null());
    hub.write(&format!("\"{at}\""), &second);
    hub.ask(&["reload"]);
    wait("a session with the key", &[&hub, &one], || hub.has_session("one") && hub.has_session("two"));
}
