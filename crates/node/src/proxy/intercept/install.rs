//! Rules into the kernel, by the program nft: installed, looked at, and taken away again.
//!
//! Rules that are to fail open belong to an `nft -i` that this process keeps (`flags owner`): the kernel removes the table with its owner, and that ends when
//! its standard input does, however this process ends. Rules that are to fail closed stay where they are when it is killed; the next start finds them.

use super::nft::{COMMENT, TABLE, chains, in_a_line, script};
use super::plan::Plan;
use super::policy;
use crate::cli::intercept::{Exclusion, Fail, InterceptArgs, Scope};
use crate::failure::Failure;
use noctule::FarText;
use rustix::thread::{CapabilitySet, capabilities};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Held by the one process of a network namespace that intercepts.
const LOCK: &[u8] = b"noctule-proxy-intercept";
/// How long nft may take, and an owner that has lost its process.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Rules of this process. Dropping it takes them away.
pub struct Rules {
    args: InterceptArgs,
    _lock: UnixDatagram,
    installed: Option<Installed>,
    /// Rules of a killed process are there, which fail closed.
    is_left: bool,
}

struct Installed {
    plan: Plan,
    /// `nft -i`, to which the table belongs.
    owner: Option<Child>,
}

fn system(text: String) -> Failure {
    Failure::System(text)
}

/// `nft` with these words and this on its standard input.
fn nft(words: &[&str], input: &str) -> Result<Output, Failure> {
    let mut command = Command::new("nft");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(missing)?;
    let mut stdin = child.stdin.take().expect("it is piped");
    // One that reads nothing says why on its standard error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().map_err(|e| system(format!("nft: {e}")))
}

fn missing(error: io::Error) -> Failure {
    system(match error.kind() {
        ErrorKind::NotFound => "interception needs the program nft, which is not in PATH: install it (Debian: apt-get install nftables); or print the rules for a tool of your own with noctule proxy rules --iptables, and add --no-rules here".into(),
        _ => format!("cannot start the program nft: {error}"),
    })
}

/// What nft said, in a line.
fn words(output: &Output) -> String {
    let said = output.stderr.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let line = said.unwrap_or(b"it does not say why");
    FarText::from_wire(line.strip_prefix(b"Error: ").unwrap_or(line), usize::MAX).to_string()
}

/// Whether this process may do any of it.
///
/// # Errors
/// It may not.
pub fn permitted() -> Result<(), Failure> {
    match capabilities(None) {
        Ok(sets) if sets.effective.contains(CapabilitySet::NET_ADMIN) => Ok(()),
        _ => Err(system(
            "no permission for interception: it needs CAP_NET_ADMIN; run it as root, or by a unit with AmbientCapabilities=CAP_NET_ADMIN"
                .into(),
        )),
    }
}

/// What stands in the table's place.
enum Found {
    Nothing,
    /// Owned: it goes with the process that made it.
    Ours {
        is_owned: bool,
    },
    Others,
}

fn find() -> Result<Found, Failure> {
    let listed = nft(&["list", "tables"], "")?;
    if !listed.status.success() {
        return Err(system(format!("nft cannot list the tables of this host: {}", words(&listed))));
    }
    if !String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.trim() == format!("table {TABLE}")) {
        return Ok(Found::Nothing);
    }
    let [family, name] = family_and_name();
    let table = nft(&["list", "table", family, name], "")?;
    let text = String::from_utf8_lossy(&table.stdout);
    Ok(match text.contains(&format!("comment \"{COMMENT}\"")) {
        true => Found::Ours { is_owned: text.lines().any(|line| line.trim() == "flags owner") },
        // It went away in between.
        false if !table.status.success() => Found::Nothing,
        false => Found::Others,
    })
}

fn family_and_name() -> [&'static str; 2] {
    let (family, name) = TABLE.split_once(' ').expect("a constant");
    [family, name]
}

/// Takes away what a proxy that was killed has left; whether there was something.
///
/// # Errors
/// The table is another program's, or the kernel does not let it go.
pub async fn take_over() -> Result<bool, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match find()? {
            Found::Nothing => return Ok(policy::clear().await.map_err(system)? > 0),
            Found::Others => return Err(others()),
            Found::Ours { .. } => {
                let [family, name] = family_and_name();
                let deleted = nft(&["delete", "table", family, name], "")?;
                if deleted.status.success() {
                    policy::clear().await.map_err(system)?;
                    return Ok(true);
                }
                // The owner of a killed process may still be ending.
                if Instant::now() > deadline {
                    return Err(system(format!("cannot remove the table {TABLE} that is there: {}", words(&deleted))));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether rules that fail closed were left by a proxy that was killed. Rules that have an owner end with it.
async fn is_left() -> Result<bool, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match find()? {
            Found::Nothing => return Ok(false),
            Found::Others => return Err(others()),
            Found::Ours { is_owned: false } => return Ok(true),
            Found::Ours { is_owned: true } if Instant::now() > deadline => {
                return Err(system(format!("the table {TABLE} has an owner that does not end: another process of nft")));
            }
            Found::Ours { is_owned: true } => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn others() -> Failure {
    Failure::Listen(format!("there is a table {TABLE} that noctule did not make; remove or rename it: nft delete table {TABLE}"))
}

/// What is named has to be there, as far as that can be seen.
fn look_up(args: &InterceptArgs) -> Result<(), Failure> {
    const GROUPS: &str = "/sys/fs/cgroup";
    for exclusion in &args.excluded {
        if let Exclusion::Cgroup(path) = exclusion
            && Path::new(GROUPS).join("cgroup.controllers").exists()
            && !Path::new(GROUPS).join(path).is_dir()
        {
            return Err(Failure::Usage(format!("--exclude cgroup:{path}: this host has no such control group: see systemd-cgls")));
        }
    }
    for scope in &args.intercept {
        if let Scope::Clients(Some(device)) = scope
            && !Path::new("/sys/class/net").join(device).exists()
        {
            tell!("noctule: warning: there is no device {device} now; nothing comes from it until there is");
        }
    }
    Ok(())
}

/// The right to intercept in this network namespace.
///
/// # Errors
/// Another process has it.
pub fn lock() -> Result<UnixDatagram, Failure> {
    let name = SocketAddr::from_abstract_name(LOCK).map_err(|e| system(format!("the lock of interception: {e}")))?;
    UnixDatagram::bind_addr(&name).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::Listen(
            "another noctule proxy intercepts on this host already; end it, or let one of them intercept all (ss -xap shows @noctule-proxy-intercept)"
                .into(),
        ),
        _ => system(format!("the lock of interception: {error}")),
    })
}

impl Rules {
    /// Looks whether rules can be installed. What a killed process left stays until ours take its place, unless these are to fail open.
    ///
    /// # Errors
    /// There is no nft, no permission, another program is there, or what the options name is not.
    pub async fn prepare(args: &InterceptArgs) -> Result<Self, Failure> {
        permitted()?;
        look_up(args)?;
        let lock = lock()?;
        let is_left = match args.fail {
            Fail::Closed => is_left().await?,
            Fail::Open => {
                take_over().await?;
                false
            }
        };
        if is_left {
            tell!(
                "noctule: what the rules of a killed proxy divert is refused until the server is reached; noctule proxy rules --remove takes them away"
            );
        }
        Ok(Self { args: args.clone(), _lock: lock, installed: None, is_left })
    }

    /// A server is reached at these addresses: from now on it is intercepted.
    ///
    /// # Errors
    /// The rules cannot be installed; nothing is left of them then.
    pub async fn up(&mut self, servers: &[IpAddr]) -> Result<(), Failure> {
        let plan = Plan::new(&self.args, servers).map_err(Failure::Usage)?;
        if self.installed.as_ref().is_some_and(|installed| installed.plan == plan) {
            return Ok(());
        }
        let result = self.install(plan).await;
        if result.is_err() && !self.is_left {
            self.remove().await;
        }
        result
    }

    /// The server is gone for now.
    pub async fn down(&mut self) {
        if self.installed.as_ref().is_some_and(|installed| installed.plan.fails_open) {
            self.remove().await;
        }
    }

    async fn install(&mut self, plan: Plan) -> Result<(), Failure> {
        if !plan.by_tproxy().is_empty() {
            policy::set().await.map_err(system)?;
        }
        // Another owner's table cannot be replaced.
        if self.installed.as_ref().is_some_and(|installed| installed.owner.is_some()) {
            self.remove_table();
        }
        if plan.fails_open {
            let owner = own(&in_a_line(&script(&plan, true)))?;
            let installed = self.installed.insert(Installed { plan, owner: Some(owner) });
            return installed.await_owner().await;
        }
        let output = nft(&["-f", "-"], &script(&plan, false))?;
        if !output.status.success() {
            return Err(system(format!("nft does not take the rules: {}", words(&output))));
        }
        self.is_left = false;
        let wrong = differs(&plan)?;
        self.installed = Some(Installed { plan, owner: None });
        wrong.map_or(Ok(()), |wrong| Err(system(format!("the rules are not there after their installation: {wrong}"))))
    }

    /// Puts back what another program has taken away. What was missing, in words.
    ///
    /// # Errors
    /// It cannot be put back.
    pub async fn mend(&mut self) -> Result<Option<String>, Failure> {
        let Some(installed) = &self.installed else { return Ok(None) };
        let plan = installed.plan.clone();
        let mut missing = differs(&plan)?;
        if missing.is_some() {
            self.install(plan).await?;
        } else if !plan.by_tproxy().is_empty() && policy::set().await.map_err(system)? > 0 {
            missing = Some("the routing of diverted packets was gone".into());
        }
        Ok(missing)
    }

    /// Takes away what is installed.
    pub async fn remove(&mut self) {
        self.remove_table();
        if let Err(error) = policy::clear().await {
            tracing::warn!("{error}");
        }
    }

    fn remove_table(&mut self) {
        let Some(installed) = self.installed.take() else { return };
        if let Some(mut owner) = installed.owner {
            // The end of its input ends it, and the kernel takes its table away.
            drop(owner.stdin.take());
            let _ = owner.wait();
            return;
        }
        let [family, name] = family_and_name();
        match nft(&["delete", "table", family, name], "") {
            Ok(output) if output.status.success() => {}
            Ok(output) => tell!("noctule: could not remove the table {TABLE}: {}", words(&output)),
            Err(failure) => tell!("noctule: could not remove the table {TABLE}: {failure}"),
        }
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        if self.installed.is_none() {
            return;
        }
        self.remove_table();
        // The runtime of this thread is about to end.
        let clearing = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(policy::clear())
        });
        if let Ok(Err(error)) = clearing.join() {
            tell!("noctule: {error}");
        }
    }
}

/// Starts the nft to which the table is to belong. Ctrl-C is not for it.
fn own(line: &str) -> Result<Child, Failure> {
    let mut command = Command::new("nft");
    // It would keep a history of what it is told in the home directory.
    command.arg("-i").env("HOME", "/dev/null").process_group(0);
    let mut owner = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(missing)?;
    let stdin = owner.stdin.as_mut().expect("it is piped");
    let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush());
    Ok(owner)
}

impl Installed {
    /// Waits until the owner's table is as it should be.
    async fn await_owner(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(wrong) = differs(&self.plan)? else { return Ok(()) };
            let owner = self.owner.as_mut().expect("called with one");
            if Instant::now() > deadline || owner.try_wait().is_ok_and(|status| status.is_some()) {
                drop(owner.stdin.take());
                let ended = self.owner.take().map(Child::wait_with_output);
                let said = ended.and_then(Result::ok).filter(|output| !output.stderr.is_empty()).map_or(wrong, |output| words(&output));
                return Err(system(format!("nft does not take the rules, which are to fail open (nft -i, flags owner): {said}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// In what the kernel's table differs from the plan: it has every chain with as many rules.
fn differs(plan: &Plan) -> Result<Option<String>, Failure> {
    let [family, name] = family_and_name();
    // Not as JSON: nft 1.0.6 writes the flags of an owned table from memory that is not its own.
    let listed = nft(&["list", "table", family, name], "")?;
    if !listed.status.success() {
        return Ok(Some(format!("there is no table {TABLE}")));
    }
    let there = count(&String::from_utf8_lossy(&listed.stdout));
    let wrong = chains(plan).into_iter().find(|chain| there.get(chain.name) != Some(&chain.rules.len()));
    Ok(wrong.map(|chain| {
        let found = there.get(chain.name).copied().unwrap_or(0);
        format!("the chain {} has {found} rules instead of {}", chain.name, chain.rules.len())
    }))
}

/// Rules of each chain: a line each, behind that which says where the chain hangs.
fn count(listed: &str) -> BTreeMap<String, usize> {
    let (mut there, mut chain) = (BTreeMap::new(), None);
    for line in listed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            there.insert(name.to_owned(), 0);
            chain = Some(name);
        } else if line == "}" {
            chain = None;
        } else if let Some(rules) = chain.and_then(|name| there.get_mut(name))
            && !line.starts_with("type ")
        {
            *rules += 1;
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_as_nft_lists_them() {
        let listed = "table inet x { # progname nft\n\tflags owner\n\tset nets4 {\n\t\telements = { 10.0.0.0/8,\n\t\t\t127.0.0.0/8 }\n\t}\n\n\tchain divert {\n\t}\n\n\tchain own {\n\t\ttype route hook output priority mangle; policy accept;\n\t\tmeta skuid { 5, 6 } accept\n\t\treject\n\t}\n}\n";
        assert_eq!(count(listed), BTreeMap::from([("own".into(), 2), ("divert".into(), 0)]));
    }
}
