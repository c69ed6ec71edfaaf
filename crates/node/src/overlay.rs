//! An end that reaches others, and is reached, over nodes: it keeps one link, to its *gateway*, and reaches all other nodes through that.
//!
//! What passes the gateway and the nodes behind it is sealed between the ends (P16); by the link's own key the gateway knows only which end it serves.

use crate::address::host_port;
use crate::cli::{IdentityArgs, ListenArgs, PeerArgs, ViaArgs};
use crate::daemon::{Peer, RemoteNode, call};
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::Access;
use crate::perf::protocol::Mode;
use crate::tree::Expected;
use ipnet::IpNet;
use noctule::{
    BindError, CloseReason, Code, Endpoint, EndpointConfig, NodeConfig, OpenError, PublicKey, Route, Session, SessionAccess, Via,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A gateway that has not taken a session after this long does not serve us.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `--via` changes in the configuration of an end. `serves`: the peers that it takes; `None` if it opens sessions only.
pub fn configure(node: &mut NodeConfig, via: &ViaArgs, serves: Option<&Access>) -> Result<(), Failure> {
    if via.via.is_empty() {
        return Ok(());
    }
    if !via.via_key.is_empty() && via.via_key.len() != via.via.len() {
        let (nodes, keys) = (via.via.len(), via.via_key.len());
        return Err(Failure::Usage(format!("{nodes} --via and {keys} --via-key: give one key for each node, in the same order, or none")));
    }
    node.several_routes = !via.one_route;
    node.session_psk = node.psk.take();
    node.psk = via.via_psk.as_deref().map(identity::shared_key).transpose()?;
    // The gateway opens a session, too: that is what keeps its side of the link (P23).
    node.accept = true;
    node.sessions_from = match serves {
        Some(access) => access.keys().map_or(SessionAccess::Anyone, SessionAccess::Keys),
        None => SessionAccess::Keys(Vec::new()),
    };
    if serves.is_none() {
        node.authorised = Some(Vec::new());
    }
    Ok(())
}

/// The socket of an end that serves: where asked, on the default port of every address, or, if it is reached over a node, on any port.
pub fn bind(listen: &ListenArgs, via: &ViaArgs, config: EndpointConfig) -> Result<Endpoint, Failure> {
    if !via.via.is_empty() && !listen.is_said() {
        return Ok(Endpoint::client(config)?);
    }
    let config = config.with_shards(if via.via.is_empty() { shards() } else { 1 });
    match &listen.places()?[..] {
        [any, instead] => match Endpoint::bind(*any, config.clone()) {
            Err(BindError::NotAvailable(_)) => Ok(Endpoint::bind(*instead, config)?),
            bound => Ok(bound?),
        },
        places => Ok(Endpoint::bind_each(places, config)?),
    }
}

/// An end that many may call uses the machine: half of its cores, for the kernel and the program's own work need the others (docs/results/data-path.md).
/// More than eight are more than the queues of a network card usually feed.
fn shards() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).clamp(1, 8)
}

/// TCP knows nothing of the overlay.
pub fn check_mode(via: &ViaArgs, mode: Mode) -> Result<(), Failure> {
    match (via.via.first(), mode) {
        (Some(_), Mode::Tcp) => {
            Err(Failure::Usage("TCP does not go over nodes: leave out --via, or measure through their TUN devices".into()))
        }
        _ => Ok(()),
    }
}

/// The node that an end is attached to, or several. Dropping it ends the attachment.
pub struct Gateway {
    /// At least one.
    peers: Vec<Arc<Peer>>,
    address: IpAddr,
    expected: Expected,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.peers.iter().for_each(|peer| peer.drop_links("this end has left"));
    }
}

impl Gateway {
    /// Attaches `endpoint`, whose key is `ours`, if `--via` was given: a link and a session with each gateway, which are made again for ever when they
    /// break, and equal routes over them to all ends. With `serves` the caller accepts sessions, and gives the gateway's to [`Self::takes`].
    pub async fn attach(
        endpoint: &Endpoint,
        ours: PublicKey,
        via: &ViaArgs,
        identity: &IdentityArgs,
        serves: bool,
    ) -> Result<Option<Self>, Failure> {
        let Some(address) = via.address.filter(|_| !via.via.is_empty()) else { return Ok(None) };
        endpoint.set_addresses(&[address]);
        let mut this = Self { peers: Vec::new(), address, expected: Expected::default(), tasks: Vec::new() };
        if !serves {
            this.tasks.push(tokio::spawn(serve_nobody(endpoint.clone())));
        }
        for (at, host) in via.via.iter().enumerate() {
            let host = host_port(host, None).map_err(|wrong| Failure::Usage(format!("--via: {wrong}")))?;
            this.attach_to(endpoint, ours, host, via.via_key.get(at).copied(), via, identity).await?;
        }
        Ok(Some(this))
    }

    /// One more of them.
    async fn attach_to(
        &mut self,
        endpoint: &Endpoint,
        ours: PublicKey,
        host: String,
        key: Option<PublicKey>,
        via: &ViaArgs,
        identity: &IdentityArgs,
    ) -> Result<(), Failure> {
        let address = self.address;
        // The gateway's key is settled as that of any other host.
        let asked = PeerArgs { peer_key: key, ..PeerArgs::default() };
        let protection = IdentityArgs { psk: via.via_psk.clone(), ..identity.clone() };
        let settled = identity::Peer::settle(&host, &asked, &protection).await.map_err(Failure::of_node)?;
        let refused = |reason: &CloseReason| match reason.code {
            Code::NotAuthorised => Failure::NotServed { node: host.clone(), ours, address },
            _ => Failure::PeerGone(format!("{host}: {reason}")),
        };
        let link = endpoint.connect_link_host(&host, settled.key).await.map_err(|error| match error {
            noctule::ConnectError::NotAuthorised => Failure::NotServed { node: host.clone(), ours, address },
            error => settled.failure(ours, error).of_node(),
        })?;
        let everybody = [IpNet::new_assert(Ipv4Addr::UNSPECIFIED.into(), 0), IpNet::new_assert(Ipv6Addr::UNSPECIFIED.into(), 0)];
        let peer = Peer::new(endpoint.clone(), RemoteNode::gateway(host.clone(), settled.key));
        self.peers.push(Arc::clone(&peer));
        let over = |peer: &Arc<Peer>| everybody.map(|to| Route { to, via: Via::Neighbour(peer.key), metric: 0 });
        endpoint.set_routes(self.peers.iter().flat_map(over).collect());
        peer.add_link(link);
        let link = peer.newest_link();
        self.tasks.extend([
            tokio::spawn(Arc::clone(&peer).keep_session()),
            tokio::spawn(call(endpoint.clone(), Arc::clone(&peer), host.clone(), Vec::new(), None)),
        ]);
        let closed = async {
            match &link {
                Some(link) => link.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = peer.session() => Ok(()),
            reason = closed => Err(refused(&reason)),
            () = tokio::time::sleep(PATIENCE) => Err(Failure::Unreachable(host.clone())),
        }
    }

    /// The key of the first.
    pub fn key(&self) -> PublicKey {
        self.peers[0].key
    }

    /// The name by which the node with this key was given.
    pub fn name_of(&self, key: PublicKey) -> Option<String> {
        self.peers.iter().find(|peer| peer.key == key).map(|peer| peer.name())
    }

    /// A session with the first, once there is one.
    pub async fn session(&self) -> Session {
        self.peers[0].session().await
    }

    /// Whether a session is the gateway's own, which keeps the link; it is served here until it ends: by it come the packets of trees.
    pub fn takes(&self, session: &Session) -> bool {
        let is_its = self.peers.iter().any(|peer| session.peer_key() == peer.key) && session.far_address().is_none();
        if is_its {
            tokio::spawn(self.expected.clone().serve(session.clone()));
        }
        is_its
    }

    /// Flows of trees that it passes on to this end.
    pub fn expected(&self) -> Expected {
        self.expected.clone()
    }
}

/// Takes what the gateway opens; nobody else may open anything.
async fn serve_nobody(endpoint: Endpoint) {
    while let Some(session) = endpoint.accept().await {
        tokio::spawn(hold(session));
    }
}

/// Keeps a session until its far end ends it; its flows find nobody.
pub async fn hold(session: Session) {
    while let Ok(flow) = session.accept_flow().await {
        drop(flow);
    }
}

/// A session with `peer`: over the gateway if there is one, else straight. The far end has the key of `peer`, or the session ends;
/// [`Session::accepted`] tells whether it takes this end.
pub async fn reach(endpoint: &Endpoint, peer: &identity::Peer, ours: PublicKey, gateway: Option<&Gateway>) -> Result<Session, Failure> {
    let Some(gateway) = gateway else {
        let session = endpoint.connect_host_early(&peer.host, Some(peer.key)).await.map_err(|e| peer.failure(ours, e))?;
        for path in &peer.paths {
            path.add(&session).await.map_err(Failure::Usage)?;
        }
        return Ok(session);
    };
    let Some(to) = peer.overlay else { return Err(Failure::Usage(format!("{} is no address of the overlay", peer.host))) };
    endpoint.open_session_to(to, peer.key).map_err(|error| match error {
        OpenError::Misuse(why) => Failure::Usage(format!("{to} cannot be reached from {}: {why}", gateway.address)),
        error => error.into(),
    })
}
