//! The tools of noctule as contenders: `noctule perf -s` on the last host, a client of it on the first, attached to relays where there are any.

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::chain::Chain;
use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::noctule;
use super::process::Process;
use super::relays::Chained;
use super::scratch::Scratch;
use crate::scenario::Scenario;

const PORT: u16 = 4242;
const READY: Duration = Duration::from_secs(10);
/// How long a client may take beyond its measurement to open, close and report.
const MARGIN: Duration = Duration::from_secs(30);
/// How long a traced server may take to end when its client has.
const LAST_EVENTS: Duration = Duration::from_secs(10);

/// What two ends of noctule need before they start: keys, and the relays between them where there are any.
pub(crate) struct Footing {
    pub(crate) binary: PathBuf,
    pub(crate) client_key: PathBuf,
    pub(crate) client_public: String,
    pub(crate) server_key: PathBuf,
    pub(crate) server_public: String,
    pub(crate) relays: Option<Chained>,
    _keys: Scratch,
}

impl Footing {
    /// Makes the keys and starts the relays of `chain`.
    pub(crate) fn make(chain: &Chain, scenario: &Scenario) -> Result<Self, ContestError> {
        let binary = noctule::binary()?;
        let keys = Scratch::new("noctule-lab-keys")?;
        let (client_key, server_key) = (keys.path().join("client"), keys.path().join("server"));
        let (client_public, server_public) = (noctule::keygen(&binary, &client_key)?, noctule::keygen(&binary, &server_key)?);
        let relays = match scenario.network.is_end_to_end() {
            true => None,
            false => Some(Chained::start(chain, scenario, &binary, keys.path(), [&client_public, &server_public])?),
        };
        Ok(Self { binary, client_key, client_public, server_key, server_public, relays, _keys: keys })
    }
}

/// A running server, and what its client needs.
pub(super) struct Ends {
    client: Command,
    server: Process,
    is_traced: bool,
    _footing: Footing,
}

impl Ends {
    /// Starts the server and its relays. The client will run `tool`, whose words before the host's are `words`.
    pub(super) fn start(path: &ContenderPath<'_>, scenario: &Scenario, words: &[&str]) -> Result<Self, ContestError> {
        let footing = Footing::make(path.chain, scenario)?;
        let Footing { binary, client_key, client_public, server_key, server_public, relays, .. } = &footing;
        let port = PORT.to_string();
        let mut command = path.chain.last().command(binary);
        command.args(["perf", "-s", "-p", &port, "--allow", client_public, "--key"]).arg(server_key);
        command.args(relays.as_ref().map(Chained::far).unwrap_or_default());
        if let Some(capture) = path.capture {
            // It ends by itself after the test, with its last events written.
            command.arg("--once").arg("--trace").arg(capture.trace("far.sqlog")?);
        }
        let mut server = Process::start(&mut command, |_| {})?;
        // Attached to its node, if there are any, and listening.
        server.wait_until(READY, "did not serve tests", |server| Ok(server.complaint().contains("serving tests")))?;
        let far = relays.as_ref().map_or(path.far, Chained::far_address);
        let mut client = path.chain.first().command(binary);
        client.args(words).arg(far.to_string()).args(["-J", "-p", &port, "--peer-key", server_public, "--key"]).arg(client_key);
        client.args(relays.as_ref().map(Chained::near).unwrap_or_default());
        if let Some(capture) = path.capture {
            client.arg("--trace").arg(capture.trace("near.sqlog")?);
        }
        Ok(Self { client, server, is_traced: path.capture.is_some(), _footing: footing })
    }

    /// Runs the client with these further words, for about `time`, and gives what it printed.
    pub(super) fn run(&mut self, words: &[String], time: Duration, started: &dyn Fn()) -> Result<Value, ContestError> {
        let (heard, lines) = mpsc::channel();
        self.client.args(words);
        started();
        // The receiver is gone only when this function has returned.
        let mut client = Process::start(&mut self.client, move |line| drop(heard.send(line.to_owned())))?;
        match client.wait(Instant::now() + time + MARGIN)? {
            Some(status) if status.success() => {}
            Some(status) => return Err(ContestError::Process(format!("noctule failed ({status}): {}", client.complaint()))),
            None => return Err(ContestError::Process(format!("noctule did not end within {MARGIN:?} of its time"))),
        }
        if self.is_traced && self.server.wait(Instant::now() + LAST_EVENTS)?.is_none() {
            return Err(ContestError::Process(format!("the server did not end within {LAST_EVENTS:?}: its trace is not whole")));
        }
        let text: Vec<String> = lines.try_iter().collect();
        serde_json::from_str(&text.join("\n")).map_err(|error| ContestError::Process(format!("noctule -J printed no JSON object: {error}")))
    }
}
