//! What makes and changes a node's file: `noctule node init`, `add-neighbour` and `--example`.

use super::config::{Config, check_text};
use crate::address::{DEFAULT_PORT, Listen, host_port};
use crate::cli::{AddNeighbourArgs, InitArgs};
use crate::failure::Failure;
use crate::identity::{self, keygen};
use crate::invitation::{self, THIS_HOST};
use crate::shell::quoted;
use crate::whole_file;
use noctule::{PublicKey, SecretKey};
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A file with every key explained, as `noctule node --example` prints it.
pub const EXAMPLE: &str = include_str!("example.toml");

/// A text as TOML writes it.
fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

fn list<T: ToString>(values: &[T]) -> String {
    format!("[{}]", values.iter().map(|v| text(&v.to_string())).collect::<Vec<_>>().join(", "))
}

/// `noctule node init`.
pub fn init(path: &Path, args: &InitArgs) -> Result<(), Failure> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(|e| Failure::target(directory, &e))?;
    // Told before a key is made.
    if path.symlink_metadata().is_ok() {
        return kept(path, args);
    }
    let content = content(args);
    let key = directory.join("key");
    let (public, is_new) = match key.exists() {
        true => (identity::endpoint_config(Some(&key))?.0.identity.public(), false),
        false => (keygen::make::<SecretKey>(&key, false)?.public(), true),
    };
    check_text(path, &content).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map_err(|e| Failure::target(path, &e))?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(|e| Failure::target(path, &e))?;
    note!(
        "{} is made; {} {}\npublic key of this node:",
        path.display(),
        if is_new { "its key is" } else { "the key that was there is kept:" },
        key.display()
    );
    say!("{public}");
    note!(
        "\nnext:\n  noctule node add-neighbour{config} NAME KEY [HOST[:PORT]] --address IP\n  noctule node --check{config}\n{}",
        service(path, &key),
        config = named(path)
    );
    Ok(())
}

/// `init` where the file is there already: it stays, and if it is what is asked for, that is no error.
fn kept(path: &Path, args: &InitArgs) -> Result<(), Failure> {
    let there = std::fs::read_to_string(path).map_err(|e| Failure::source(path, e))?;
    let is_asked_for = *args == InitArgs::default() || there.starts_with(&content(args));
    if !is_asked_for {
        return Err(Failure::Usage(format!(
            "{} exists already with something else, and is left as it is: noctule node add-neighbour changes it, --config names another",
            path.display()
        )));
    }
    let config = check_text(path, &there).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    let public = identity::endpoint_config(Some(&config.key))?.0.identity.public();
    note!("{} exists already, and is left as it is\npublic key of this node:", path.display());
    say!("{public}");
    Ok(())
}

/// ` --config FILE`, where it is not the usual one.
fn named(path: &Path) -> String {
    match path == Path::new(crate::cli::NODE_FILE) {
        true => String::new(),
        false => format!(" --config {}", quoted(path)),
    }
}

/// How it is started, by hand or by systemd.
fn service(path: &Path, key: &Path) -> String {
    if path != Path::new(crate::cli::NODE_FILE) {
        return format!("  noctule node{}", named(path));
    }
    // The unit runs as a user of its own, which has to read the key.
    format!(
        "  noctule node                                    # by hand, or as a service:\n  sudo useradd --system --no-create-home --shell /usr/sbin/nologin noctule\n  sudo chown noctule {}\n  sudo systemctl enable --now noctule-node",
        quoted(key)
    )
}

/// The new file.
fn content(args: &InitArgs) -> String {
    let mut out =
        String::from("# A noctule node: noctule.toml(5) describes every table and key, noctule node --example shows them.\n\n[node]\n");
    match &args.name {
        Some(name) => out += &format!("name = {}\n", text(name)),
        None => out += "# name = \"home\"                    # the host's name, if it is not said\n",
    }
    out += "key = \"key\"                        # relative to this file\n";
    match &args.listen {
        Some(listen) => out += &format!("listen = {}\n", text(listen)),
        None => out += "# listen = \"[::]:4242\"\n",
    }
    match &args.address[..] {
        [] => out += "# addresses = [\"10.9.0.1\"]         # this node in the overlay\n",
        addresses => out += &format!("addresses = {}\n", list(addresses)),
    }
    out += if args.relay {
        "relay = true                       # forwards flows of others\n"
    } else {
        "# relay = true                     # forward flows of others\n"
    };
    match &args.tun[..] {
        [] => out += "\n# [tun]                             # IP packets through a device\n# addresses = [\"10.9.0.1/24\"]\n",
        addresses => out += &format!("\n[tun]\naddresses = {}\n", list(addresses)),
    }
    if let Some(socket) = &args.socket {
        out += &format!("\n[control]\nsocket = {}\n", text(&socket.to_string_lossy()));
    }
    out
}

/// `noctule node add-neighbour`.
pub fn add_neighbour(path: &Path, args: &AddNeighbourArgs) -> Result<(), Failure> {
    // A link to the file stays one.
    let path = std::fs::canonicalize(path).map_err(|e| Failure::source(path, format!("{e}; noctule node init makes a file")))?;
    let before = std::fs::read_to_string(&path).map_err(|e| Failure::source(&path, e))?;
    let mut block = format!("\n[[neighbour]]\nname = {}\nkey = {}\n", text(&args.name), text(&args.key.to_string()));
    if let Some(endpoint) = &args.endpoint {
        host_port(endpoint, None).map_err(Failure::Usage)?;
        block += &format!("endpoint = {}\n", text(endpoint));
    }
    if !args.address.is_empty() {
        block += &format!("addresses = {}\n", list(&args.address));
    }
    if !args.prefix.is_empty() {
        block += &format!("prefixes = {}\n", list(&args.prefix));
    }
    if let Some(psk) = &args.psk {
        let psk = std::path::absolute(psk).map_err(|e| Failure::source(psk, e))?;
        block += &format!("psk = {}\n", text(&psk.to_string_lossy()));
    }
    // The same command again changes nothing.
    let is_there = before.contains(&block);
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let after = if is_there { before } else { format!("{before}{gap}{block}") };
    let config = check_text(&path, &after).map_err(|wrong| Failure::Usage(format!("{wrong}\nnothing was changed")))?;
    let ours = identity::endpoint_config(Some(&config.key))?.0.identity.public();
    if ours == args.key {
        return Err(Failure::Usage("this is the key of this node itself: add the key of the other; nothing was changed".into()));
    }
    if is_there {
        note!("{:?} stands in {} already, as it is asked for: nothing was changed", args.name, path.display());
    } else {
        replace(&path, &after)?;
        note!("{:?} is added to {}; noctule reload takes it over in a node that runs", args.name, path.display());
    }
    let is_called = args.endpoint.is_some();
    let name = &args.name;
    let what = if is_called { "waits for calls of this node" } else { "has to call this node" };
    note!("{name} {what}. Type this on {name}:");
    let line = command(&config, ours, is_called, args.psk.is_some());
    say!("{line}");
    let mut hints = Vec::new();
    if !is_called {
        hints.push(match line.contains(THIS_HOST) {
            true => format!("put a name or an address of this host in place of {THIS_HOST}"),
            false => format!("put a name or another address of this host in place of the one above, if {name} does not reach it"),
        });
    }
    if args.psk.is_some() {
        hints.push("--psk: where the copy of that file lies on the other host".to_owned());
    }
    if config.tun.is_some() {
        hints.push("add --prefix NETWORK there for each network behind this node".to_owned());
        if args.address.is_empty() {
            hints.push(format!(
                "without --address nothing is sent to {:?} through the device, but to networks behind it (--prefix)",
                args.name
            ));
        }
    }
    if config.addresses.is_empty() {
        hints.push("[node] addresses is not set: this node has no address in the overlay".to_owned());
    }
    hints.iter().for_each(|hint| note!("{hint}"));
    Ok(())
}

/// What the other node needs, as it is typed there.
fn command(config: &Config, ours: PublicKey, is_called: bool, has_psk: bool) -> String {
    let mut line = format!("noctule node add-neighbour {} {ours}", quoted(&config.name));
    if !is_called {
        line.push_str(&format!(" {}", place(config.listen.first().copied())));
    }
    config.addresses.iter().for_each(|address| line.push_str(&format!(" --address {address}")));
    if has_psk {
        line.push_str(" --psk FILE");
    }
    line
}

/// Where this node is to be called, as far as it can know.
fn place(listen: Option<SocketAddr>) -> String {
    let at = listen.unwrap_or_else(|| SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), DEFAULT_PORT));
    invitation::host(at)
}

/// Puts a new content in place of a file's, as a whole or not at all; mode and owner stay.
fn replace(path: &Path, content: &str) -> Result<(), Failure> {
    let put = |meta: std::fs::Metadata| whole_file::replace(path, content.as_bytes(), Some(&meta));
    std::fs::metadata(path).and_then(put).map_err(|e| Failure::target(path, &e))
}

/// Whether a place to listen is one, before it is written down.
pub fn listen(text: &str) -> Result<String, String> {
    text.parse::<Listen>().map(|_| text.to_owned())
}
