//! The path of a contender's packets over a chain: by the chain's own addresses, or through the TUN devices of nodes on every host.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::capture::Capture;
use super::chain::Chain;
use super::contest::ContestError;
use super::noctule;
use super::process::Process;
use super::relays::{self, NodeFile};
use super::scratch::Scratch;
use crate::scenario::{Relays, Scenario};

/// A started path.
pub(super) struct ContenderPath<'a> {
    /// The hosts.
    pub(super) chain: &'a Chain,
    /// Address of the first host, as the last one sees it.
    pub(super) near: IpAddr,
    /// Address of the last host, as the first one sees it.
    pub(super) far: IpAddr,
    /// Where the ends of noctule write their traces, if that is asked for.
    pub(super) capture: Option<&'a Capture>,
    _nodes: Vec<Process>,
    _scratch: Option<Scratch>,
}

impl<'a> ContenderPath<'a> {
    /// What the scenario asks for.
    pub(super) fn start(chain: &'a Chain, scenario: &Scenario, capture: Option<&'a Capture>) -> Result<Self, ContestError> {
        match scenario.network.relays {
            Relays::Tunnel => Self::tunnel(chain, scenario, capture),
            Relays::Recode | Relays::Ip | Relays::Proxy => {
                let (near, far) = (chain.first_address(), chain.last_address());
                Ok(Self { chain, near, far, capture, _nodes: Vec::new(), _scratch: None })
            }
        }
    }

    /// `noctule node` on every host; the first and the last have a TUN device, and a session with each other.
    fn tunnel(chain: &'a Chain, scenario: &Scenario, capture: Option<&'a Capture>) -> Result<Self, ContestError> {
        let binary = noctule::binary()?;
        let scratch = Scratch::new("noctule-lab-nodes")?;
        let last = chain.hosts().len() - 1;
        let mut keys = Vec::new();
        for index in 0..=last {
            std::fs::create_dir(relays::directory(scratch.path(), index))?;
            keys.push(noctule::keygen(&binary, &relays::directory(scratch.path(), index).join("key"))?);
        }
        let towards_first: Vec<IpAddr> = chain.between().map(|(_, address)| address).chain([chain.last_address()]).collect();
        let mut nodes = Vec::new();
        for (index, host) in chain.hosts().iter().enumerate().rev() {
            let next = towards_first.get(index).map(|address| SocketAddr::new(*address, relays::PORT));
            let file = NodeFile { index, last, keys: &keys, next, congestion: &scenario.cc.to_string(), is_tunnel: true };
            nodes.push(relays::start_node(host, &binary, scratch.path(), &file)?);
        }
        for index in 0..last {
            relays::wait_for_session(&binary, &relays::directory(scratch.path(), index), index + 1, || Ok(()))?;
        }
        let (near, far) = (relays::overlay(0), relays::overlay(last));
        // A session with a node further away is opened when there is something to send.
        relays::wait_for_session(&binary, &relays::directory(scratch.path(), 0), last, || {
            chain.first().enter(|| UdpSocket::bind("0.0.0.0:0")?.send_to(b"noctule", (far, 9)))??;
            std::thread::sleep(Duration::from_millis(100));
            Ok(())
        })?;
        Ok(Self { chain, near, far, capture, _nodes: nodes, _scratch: Some(scratch) })
    }
}
