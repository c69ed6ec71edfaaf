//! Rules into the kernel, by the program nft: installed, looked at, and taken away again.
//!
//! Rules that are to fail open belong to an `nft -i` that this process keeps (`flags owner`): the kernel removes the table with its owner, and that ends when
//! its standard input does, however this process ends. Rules that are to fail closed stay where they are when it is killed; the next start finds them.

use super::POLICY;
use super::nft::{COMMENT, TABLE, table};
use super::plan::Plan;
use crate::cli::intercept::{Exclusion, Fail, InterceptArgs, Scope};
use crate::divert::{self, Found, NftError, Table, in_a_line, words};
use crate::failure::Failure;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
    /// What could not be installed: [`Rules::mend`] tries again.
    wanted: Option<Plan>,
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

/// What nft could not do, and what there is instead of it.
fn told(error: NftError) -> Failure {
    system(match error {
        NftError::Missing => "interception needs the program nft, which is not in PATH: install it (Debian: apt-get install nftables); or print the rules for a tool of your own with noctule proxy rules --iptables, and add --no-rules here".into(),
        error => error.to_string(),
    })
}

/// The table by its name.
fn ours() -> Table {
    Table::named(TABLE.into(), COMMENT)
}

/// Whether this process may do any of it.
///
/// # Errors
/// It may not.
pub fn permitted() -> Result<(), Failure> {
    match divert::is_permitted() {
        true => Ok(()),
        false => Err(system(
            "no permission for interception: it needs CAP_NET_ADMIN; run it as root, or by a unit with AmbientCapabilities=CAP_NET_ADMIN"
                .into(),
        )),
    }
}

/// Takes away what a proxy that was killed has left; whether there was something.
///
/// # Errors
/// The table is another program's, or the kernel does not let it go.
pub async fn take_over() -> Result<bool, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ours().find().map_err(told)? {
            Found::Nothing => return Ok(POLICY.clear().await.map_err(system)? > 0),
            Found::Others => return Err(others()),
            Found::Ours { .. } => {
                match ours().delete() {
                    Ok(()) => {
                        POLICY.clear().await.map_err(system)?;
                        return Ok(true);
                    }
                    // The owner of a killed process may still be ending.
                    Err(error) if Instant::now() > deadline => {
                        return Err(system(format!("cannot remove the table {TABLE} that is there: {error}")));
                    }
                    Err(_) => {}
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
        match ours().find().map_err(told)? {
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
        Ok(Self { args: args.clone(), _lock: lock, installed: None, wanted: None, is_left })
    }

    /// A server is reached at these addresses: from now on it is intercepted.
    ///
    /// # Errors
    /// The rules cannot be installed. Those that fail open are gone then; those that fail closed stay as they were, for no error may let traffic by.
    pub async fn up(&mut self, servers: &[IpAddr]) -> Result<(), Failure> {
        let plan = Plan::new(&self.args, servers).map_err(Failure::Usage)?;
        if self.installed.as_ref().is_some_and(|installed| installed.plan == plan) {
            return Ok(());
        }
        let result = self.install(plan.clone()).await;
        self.wanted = result.is_err().then(|| plan.clone());
        if result.is_err() && may_go(&plan, self.installed.is_some(), self.is_left) {
            self.remove().await;
        }
        result
    }

    /// The server is gone for now.
    pub async fn down(&mut self) {
        if self.args.fail == Fail::Open {
            self.wanted = None;
            if self.installed.is_some() {
                self.remove().await;
            }
        }
    }

    async fn install(&mut self, plan: Plan) -> Result<(), Failure> {
        if !plan.by_tproxy().is_empty() {
            POLICY.set().await.map_err(system)?;
        }
        // Another owner's table cannot be replaced.
        if self.installed.as_ref().is_some_and(|installed| installed.owner.is_some()) {
            self.remove_table();
        }
        if plan.fails_open {
            let owner = own(&in_a_line(&table(&plan).script(true)))?;
            let installed = self.installed.insert(Installed { plan, owner: Some(owner) });
            return installed.await_owner().await;
        }
        table(&plan).put().map_err(told)?;
        self.is_left = false;
        let wrong = table(&plan).differs().map_err(told)?;
        self.installed = Some(Installed { plan, owner: None });
        wrong.map_or(Ok(()), |wrong| Err(system(format!("the rules are not there after their installation: {wrong}"))))
    }

    /// Puts back what another program has taken away. What was missing, in words.
    ///
    /// # Errors
    /// It cannot be put back.
    pub async fn mend(&mut self) -> Result<Option<String>, Failure> {
        if let Some(plan) = self.wanted.clone() {
            self.install(plan).await?;
            self.wanted = None;
            return Ok(Some("those for the server's address could not be installed before".into()));
        }
        let Some(installed) = &self.installed else { return Ok(None) };
        let plan = installed.plan.clone();
        let mut missing = table(&plan).differs().map_err(told)?;
        if missing.is_some() {
            self.install(plan).await?;
        } else if !plan.by_tproxy().is_empty() && POLICY.set().await.map_err(system)? > 0 {
            missing = Some("the routing of diverted packets was gone".into());
        }
        Ok(missing)
    }

    /// Takes away what is installed.
    pub async fn remove(&mut self) {
        self.remove_table();
        if let Err(error) = POLICY.clear().await {
            tracing::warn!("{error}");
        }
    }

    fn remove_table(&mut self) {
        let Some(installed) = self.installed.take() else { return };
        if let Some(mut owner) = installed.owner {
            // The end of its input ends it, and the kernel takes its table away.
            drop(owner.stdin.take());
            // One that does not end is killed.
            let _ = divert::ended(&mut owner);
            return;
        }
        if let Err(error) = ours().delete() {
            tell!("noctule: could not remove the table {TABLE}: {error}");
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
            runtime.block_on(POLICY.clear())
        });
        if let Ok(Err(error)) = clearing.join() {
            tell!("noctule: {error}");
        }
    }
}

/// Whether what is there goes when this plan could not be installed. What fails closed goes only where it is new: it was not there before.
fn may_go(plan: &Plan, was_installed: bool, is_left: bool) -> bool {
    !is_left && (plan.fails_open || !was_installed)
}

/// Starts the nft to which the table is to belong. Ctrl-C is not for it.
fn own(line: &str) -> Result<Child, Failure> {
    let mut command = Command::new("nft");
    // It would keep a history of what it is told in the home directory.
    command.arg("-i").env("HOME", "/dev/null").process_group(0);
    let mut owner =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(|error| told(error.into()))?;
    let stdin = owner.stdin.as_mut().expect("it is piped");
    let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush());
    Ok(owner)
}

impl Installed {
    /// Waits until the owner's table is as it should be.
    async fn await_owner(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(wrong) = table(&self.plan).differs().map_err(told)? else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: InterceptArgs,
    }

    /// The server has another address, and nft fails once: what was diverted may not pass by meanwhile.
    #[test]
    fn an_error_takes_away_what_fails_open_and_leaves_what_fails_closed() {
        let plan = |fail: &str| {
            let line = Line::try_parse_from(["noctule", "--intercept", "own", "--fail", fail]).unwrap_or_else(|e| panic!("{e}"));
            Plan::new(&line.args, &[IpAddr::from([192, 0, 2, 1])]).unwrap()
        };
        let (open, closed) = (plan("open"), plan("closed"));
        assert!(may_go(&open, true, false) && may_go(&open, false, false));
        assert!(!may_go(&closed, true, false), "it was there before");
        assert!(may_go(&closed, false, false) && !may_go(&closed, false, true));
    }
}
