//! TCP connections that two nodes of an overlay carry as streams instead of packets: what the system diverts at one node, the other one dials.
//!
//! The records are the proxy's, the streams have a tag of their own (`docs/spec/proxy.md`, 7). By which session a connection goes, and what another node may
//! ask for, is decided by the owner of both ends, the node's daemon.

use crate::dial::Dialler;
use crate::far::serve_connect;
use crate::intercept::{Diversion, tcp};
use crate::listen::{self, BindError};
use crate::lookup::Lookups;
use crate::near::{INTERACTIVE, Listener};
use crate::relay::{prepare, relay, reset};
use crate::report::{Counts, End};
use crate::source::{Client, Sources};
use crate::stream::{self, Incoming, accept, refuse};
use crate::target::{Host, Target};
use crate::wire::{Answer, Outcome, Record};
use crate::{Rules, access::Pattern};
use noctule::{Class, RecvStream, SendStream, Session};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;

/// Tag of the streams: "splt". Another one than the proxy's: an end that is attached to a node may be a proxy itself.
pub const TAG: u64 = 0x7370_6c74;

/// Bytes of a connection so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Counts>);

impl Traffic {
    /// Bytes from this end's socket to the other node, and from the other node to the socket.
    pub fn bytes(&self) -> (u64, u64) {
        self.0.get()
    }
}

/// Ports of loopback where the system is to lead connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Of IPv4.
    pub v4: u16,
    /// Of IPv6, where the host has it.
    pub v6: Option<u16>,
}

/// A connection that the system diverted here.
#[derive(Debug)]
pub struct Diverted {
    tcp: TcpStream,
    /// Where it comes from.
    pub source: SocketAddr,
    /// What it was made to.
    pub target: SocketAddr,
}

/// Takes the connections that come here by TPROXY, at ports that the system chooses, until the listener is dropped.
///
/// # Errors
/// This process may not have transparent sockets (it lacks CAP_NET_ADMIN), or there is no port.
pub fn divert<F>(mark: u32, handle: impl Fn(Diverted) -> F + Clone + Send + Sync + 'static) -> Result<(Listener, Ports), BindError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut listener = Listener::default();
    let mut open = |at: SocketAddr| -> io::Result<u16> {
        let socket = tcp::listen(at, Diversion::Tproxy, Some(mark))?;
        let bound = socket.local_addr()?;
        listener.addresses.push(bound);
        let handle = handle.clone();
        listener.tasks.push(tokio::spawn(async move {
            loop {
                let (tcp, source) = listen::accept(&socket).await;
                // By TPROXY the socket has the address that the connection was made to.
                match tcp.local_addr() {
                    // It was made to this port itself, which is for nobody.
                    Ok(target) if target.ip().is_loopback() => reset(&tcp),
                    Ok(target) => {
                        prepare(&tcp);
                        tokio::spawn(handle(Diverted { tcp, source, target: SocketAddr::new(target.ip().to_canonical(), target.port()) }));
                    }
                    Err(_) => reset(&tcp),
                }
            }
        }));
        Ok(bound.port())
    };
    let failed = |at: SocketAddr| move |error| BindError { kind: "TCP", place: at.to_string(), error };
    let (at4, at6) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
    let v4 = open(at4).map_err(failed(at4))?;
    let v6 = match open(at6) {
        Ok(port) => Some(port),
        Err(error) if listen::lacks_family(&error) => None,
        Err(error) => return Err(failed(at6)(error)),
    };
    Ok((listener, Ports { v4, v6 }))
}

impl Diverted {
    /// Carries it by this session to the node at its other end, until it is over.
    pub async fn carry(self, session: &Session, traffic: &Traffic) -> End {
        let request = Record::Connect { target: self.target.into(), source: Some(self.source.into()) };
        let class = if INTERACTIVE.contains(&self.target.port()) { Class::Latency } else { Class::Bulk };
        match stream::open_as(TAG, session, &request, &[], class).await {
            Ok((send, incoming)) => relay(self.tcp, send, incoming, u64::MAX, true, &traffic.0).await,
            Err(answer) => self.refuse(answer),
        }
    }

    /// Resets it.
    pub fn refuse(self, why: Answer) -> End {
        reset(&self.tcp);
        End::Refused(why)
    }
}

/// Asks the node at the other end of a session whether it takes connections, and says that this one does.
///
/// # Errors
/// Why it does not: [`Outcome::Unreachable`] if the session has ended meanwhile.
pub async fn greet(session: &Session) -> Result<Greeting, Answer> {
    let (send, mut incoming) = stream::open_as(TAG, session, &Record::Hello, &[], Class::Latency).await?;
    let answer = incoming.prompt_answer().await;
    match answer.outcome {
        Outcome::Connected => Ok(Greeting { _send: send, incoming }),
        _ => Err(answer),
    }
}

/// The other node takes connections, for as long as this stream lives.
#[derive(Debug)]
pub struct Greeting {
    _send: SendStream,
    incoming: Incoming,
}

impl Greeting {
    /// Waits until the other node takes none any more, or the session has ended.
    pub async fn ended(&mut self) {
        self.incoming.ended().await;
    }
}

/// What another node asks for.
#[derive(Debug)]
pub enum Asked {
    /// Whether this node takes connections.
    Hello(Hello),
    /// A connection.
    Connect(Connect),
}

/// The question whether this node takes connections.
#[derive(Debug)]
pub struct Hello {
    send: SendStream,
    incoming: Incoming,
}

/// A connection that another node asks for. Nothing about it has been checked.
#[derive(Debug)]
pub struct Connect {
    send: SendStream,
    incoming: Incoming,
    /// Where it comes from.
    pub source: SocketAddr,
    /// What it is made to.
    pub target: SocketAddr,
}

/// Reads what a stream with [`TAG`] asks for. One that asks for nothing that is known here is answered, and `None`.
pub async fn asked(send: SendStream, recv: RecvStream) -> Option<Asked> {
    let mut incoming = Incoming::new(recv);
    let why = match incoming.request().await {
        Ok(Record::Hello) => return Some(Asked::Hello(Hello { send, incoming })),
        Ok(Record::Connect { target, source: Some(source) }) => match (address(&target), address(&source)) {
            (Some(target), Some(source)) => return Some(Asked::Connect(Connect { send, incoming, source, target })),
            _ => Answer::new(Outcome::Failed, "nodes name targets and sources by address"),
        },
        Ok(Record::Connect { source: None, .. }) => Answer::new(Outcome::Failed, "no source"),
        Ok(_) => Answer::new(Outcome::Unsupported, ""),
        Err(why) => Answer::new(Outcome::Failed, why.words()),
    };
    refuse(send, incoming, why).await;
    None
}

fn address(target: &Target) -> Option<SocketAddr> {
    match target.host {
        Host::Ip(ip) => Some(SocketAddr::new(ip, target.port)),
        Host::Name(_) => None,
    }
}

impl Hello {
    /// This node takes connections, until the future is dropped, or the other node has left.
    pub async fn accept(mut self) {
        if accept(&mut self.send, Answer::new(Outcome::Connected, "")).await.is_ok() {
            self.incoming.ended().await;
        }
    }

    /// It takes none.
    pub async fn refuse(self, why: Answer) {
        refuse(self.send, self.incoming, why).await;
    }
}

impl Connect {
    /// Dials the target from the client's own address, and carries the connection until it is over. The socket's packets have the mark.
    pub async fn dial(self, mark: u32, traffic: &Traffic) -> End {
        // The owner has decided about the target, and an address needs no resolver.
        let rules = Rules { allow_private: true, ..Rules::default() };
        let sources = Arc::new(Sources { as_client: vec![Pattern::ALL], ..Sources::default() });
        let client = Some(Client { sources, at: Some(self.source) });
        let dialler = Dialler { rules, lookups: Lookups::default(), mark: Some(mark), client };
        serve_connect(self.send, self.incoming, &self.target.into(), &dialler, &traffic.0, |_| {}).await
    }

    /// It is not dialled.
    pub async fn refuse(self, why: Answer) -> End {
        refuse(self.send, self.incoming, why.clone()).await;
        End::Refused(why)
    }
}
