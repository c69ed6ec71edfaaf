//! Text of other hosts, from the wire to where people and programs read it: nothing that drives a terminal or forges a line gets through.

mod support;

use noctule::{Endpoint, EndpointConfig, IncomingFlow, SecretKey, Session};
use noctule_proto::far_text::is_deceptive;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};
use support::{Kill, PATIENCE, keygen, noctule};

/// A title, a cleared screen, a forged line, C1, direction, separators, and what cannot be seen.
const HOSTILE: &str = "\x1b]0;owned\x07\x1b[2J\r\nnoctule: verified\n\u{9b}2J\u{202e}\u{2066}\u{2028}\u{2029}\u{200b}\u{feff}\u{e0041}";

/// Lines of ours stay lines; what is in them was chosen by us.
fn assert_tame(what: &str, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(!text.chars().any(|c| is_deceptive(c) && c != '\n'), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("noctule: verified")), "{what}: {text:?}");
}

fn assert_tame_and_told(what: &str, out: &Output) {
    assert_tame(what, &out.stdout);
    assert_tame(what, &out.stderr);
    let all = [&out.stdout[..], &out.stderr[..]].concat();
    assert!(String::from_utf8_lossy(&all).contains("owned"), "{what} did not tell: {}", String::from_utf8_lossy(&all));
}

/// A far end that does this with every session; its address.
fn far_end<F: Future<Output = ()> + Send + 'static>(identity: SecretKey, each: fn(Session) -> F) -> (SocketAddr, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let endpoint = runtime.block_on(async { Endpoint::bind(([127, 0, 0, 1], 0).into(), EndpointConfig::new(identity)).unwrap() });
    let address = endpoint.local_addr();
    runtime.spawn(async move {
        while let Some(session) = endpoint.accept().await {
            tokio::spawn(each(session));
        }
    });
    (address, runtime)
}

async fn close(session: Session) {
    session.abort(77, HOSTILE);
}

/// Answers each request of `perf` with a refusal in these words.
async fn refuse(session: Session) {
    while let Ok(flow) = session.accept_flow().await {
        let IncomingFlow::Stream { mut recv, send: Some(mut sender) } = flow else { continue };
        let _ = recv.read_chunk(1 << 16).await;
        let record = serde_json::json!({"record": "refused", "message": HOSTILE}).to_string();
        let mut framed = (record.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(record.as_bytes());
        let _ = sender.write_all(&framed).await;
        let _ = sender.finish().await;
    }
}

#[test]
fn commands_show_the_words_of_a_far_end_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "content").unwrap();
    let secret = SecretKey::from_bytes([7; 32]);
    let key = secret.public().to_string();
    let (at, _far) = far_end(secret.clone(), close);
    let (refusing, _other) = far_end(secret, refuse);
    let [host, port] = [at.ip().to_string(), at.port().to_string()];
    let file = file.to_str().unwrap();
    let whole = at.to_string();
    for command in [
        &["send", file, &whole][..],
        &["send", "--json", file, &whole],
        &["ping", &host, "-p", &port, "-c", "3"],
        &["perf", "-c", &host, "-p", &port, "-t", "1"],
        &["perf", "-c", &host, "-p", &port, "-t", "1", "--json"],
    ] {
        let out = noctule().args(command).args(["--peer-key", &key]).output().unwrap();
        assert!(!out.status.success(), "{command:?}");
        assert_tame_and_told(&format!("{command:?}"), &out);
    }
    let port = refusing.port().to_string();
    let out = noctule().args(["perf", "-c", &host, "-p", &port, "-t", "1", "--peer-key", &key]).output().unwrap();
    assert_tame_and_told("perf, refused", &out);
}

#[test]
fn a_node_logs_and_reports_the_words_of_another_escaped() {
    for format in ["text", "json"] {
        let dir = tempfile::tempdir().unwrap();
        let (_, _) = keygen(dir.path(), "key");
        let secret = SecretKey::from_bytes([8; 32]);
        let (at, _far) = far_end(secret.clone(), close);
        let metrics = support::free_tcp_port();
        fs::write(
            dir.path().join("node.toml"),
            format!(
                "[node]\nkey = \"key\"\nlisten = \"127.0.0.1:0\"\n[[neighbour]]\nname = \"far\"\nkey = \"{}\"\nendpoint = \"{at}\"\n[control]\nsocket = \"socket\"\n[metrics]\nlisten = \"127.0.0.1:{metrics}\"\n",
                secret.public()
            ),
        )
        .unwrap();
        let log = dir.path().join("log");
        let to = fs::File::create(&log).unwrap();
        let mut command = noctule();
        command.args(["node", "--log-level", "debug", "--log-format", format, "--config"]).arg(dir.path().join("node.toml"));
        let _node = Kill(command.stdout(to.try_clone().unwrap()).stderr(to).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(&log).unwrap_or_default().contains("owned") {
            assert!(Instant::now() < deadline, "{}", fs::read_to_string(&log).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_tame(format, &fs::read(&log).unwrap());
        let socket = dir.path().join("socket");
        for json in [&["--json"][..], &[]] {
            let out = noctule().arg("status").args(json).arg("--socket").arg(&socket).output().unwrap();
            assert_tame("status", &[out.stdout, out.stderr].concat());
        }
        assert_tame("metrics", &support::http_get(metrics, "/metrics"));
    }
}

/// Files with these names below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs")
            && !path.to_string_lossy().ends_with("_tests.rs")
            && !path.ends_with("tests.rs")
        {
            found.push(path);
        }
    }
}

/// Lines of code outside test modules and comments.
fn code(path: &Path) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("mod tests {").next().unwrap_or_default().to_owned();
    text.lines().map(|l| l.split("//").next().unwrap_or_default().to_owned()).collect::<Vec<_>>().into_iter()
}

/// A new file that fails here makes bytes of another host into text, or writes to a terminal, past the one function for that.
#[test]
fn bytes_become_text_and_lines_leave_the_process_in_known_places_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["proto", "net", "proxy", "node"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    let into_text = ["from_utf8", "from_utf8_lossy", "from_utf8_unchecked"];
    let out = ["println!", "print!(", "eprintln!", "eprint!(", "stdout()", "stderr()", "io::stdout", "io::stderr"];
    let may_make_text = [
        "proto/src/far_text.rs",
        // `shown`: by `escaped`.
        "node/src/transfer/entry.rs",
        // Whether a name is UTF-8.
        "node/src/transfer/progress.rs",
        // A line that goes through `guarded`.
        "node/src/log.rs",
        // A link of the command line: a host's name, and a name whose characters are looked at.
        "node/src/proxy/link.rs",
        // What a fuzz target makes of its input, which is a text file's content.
        "node/src/fuzzing.rs",
        // Our own script.
        "node/src/paper/complete.rs",
        // What nft lists, of which nothing is shown.
        "node/src/divert/nft.rs",
        // The head of a request of a program on this side, and names of hosts, whose characters are looked at.
        "proxy/src/http.rs",
        // A header of a program on this side, of which nothing is shown.
        "proxy/src/proxy_protocol.rs",
        "proxy/src/socks.rs",
        "proxy/src/target.rs",
    ];
    let may_write = [
        "node/src/terminal.rs",
        "node/src/log.rs",
        // Contents of a file.
        "node/src/transfer/writer.rs",
        // A script for the user's shell.
        "node/src/paper/complete.rs",
        // A connection's bytes, for the program that uses this one to reach the target.
        "node/src/proxy/stdio.rs",
    ];
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.strip_prefix(crates).unwrap().to_str().unwrap();
        for line in code(file) {
            let is_asked = ["is_terminal()", "tcgetwinsize", "was_closed("].iter().any(|w| line.contains(w));
            let is_wrong = (into_text.iter().any(|w| line.contains(w)) && !may_make_text.contains(&name))
                || (out.iter().any(|w| line.contains(w)) && !is_asked && !may_write.contains(&name));
            if is_wrong {
                wrong.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    assert!(files.len() > 200, "{}", files.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Records that serde reads from a far end have no text but [`noctule::FarText`].
#[test]
fn records_of_measurements_hold_no_bare_string() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/perf/protocol.rs");
    let fields: Vec<String> = code(&file).filter(|l| l.trim_end().ends_with(',') && l.contains(": ") && l.contains("String")).collect();
    assert!(fields.is_empty(), "{fields:?}");
}
