//! A host of the simulator: a noctule node with its applications.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::Code;
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::node::Transmit;
use noctule_proto::trace::TraceEvent;
use noctule_proto::units::{Ecn, Time};

use super::app::{App, flow_number};
use super::machine::Machine;
use super::world::Host;

/// Segments of one train, at most (P11: bursts of at most 8 packets).
const MAX_SEGMENTS: usize = 8;

/// A node and its applications.
#[derive(Debug)]
pub struct NodeHost<N = Node> {
    /// The node.
    pub node: N,
    /// Its applications: one at the end of a link of its own, any number on a node of a network.
    pub apps: Vec<App>,
    /// The links of a node of a network, which belong to no application.
    pub neighbourhood: Option<Neighbourhood>,
    /// Hears of what the node traces, if it does.
    pub trace: Option<TraceSink>,
}

/// Hears of trace events.
pub struct TraceSink(pub Box<dyn FnMut(TraceEvent) + Send>);

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSink")
    }
}

/// A neighbour to connect to.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Its address.
    pub remote: SocketAddr,
    /// The key that must answer.
    pub key: PublicKey,
    /// Further paths: the neighbour's address and the near one.
    pub further: Vec<(SocketAddr, IpAddr)>,
}

/// The links of a node of a network, and which application each session belongs to.
#[derive(Debug, Default)]
pub struct Neighbourhood {
    /// Neighbours to connect to.
    pub dials: Vec<Dial>,
    /// Neighbours to which there is a link now.
    pub up: BTreeMap<PublicKey, LinkId>,
    /// What went wrong with links, in words.
    pub failures: Vec<String>,
    sessions: BTreeMap<SessionId, usize>,
    /// Sessions whose application is not known before their first flow.
    unknown: BTreeMap<SessionId, Event>,
    flows: BTreeMap<FlowId, usize>,
}

impl<N: Machine> NodeHost<N> {
    /// The one application of an end of a link.
    pub fn alone(node: N, app: App) -> Self {
        Self { node, apps: vec![app], neighbourhood: None, trace: None }
    }

    /// A node of a network, without applications yet.
    pub fn of_network(node: N) -> Self {
        Self { node, apps: Vec::new(), neighbourhood: Some(Neighbourhood::default()), trace: None }
    }

    /// Connects to the neighbours that this node is to call.
    pub fn dial(&mut self, now: Time) {
        let Some(neighbourhood) = &mut self.neighbourhood else { return };
        for Dial { remote, key, further } in &neighbourhood.dials {
            let link = self.node.connect(now, *remote, Some(*key));
            let made = link.and_then(|link| {
                further.iter().try_for_each(|(remote, local)| self.node.add_path(now, link, *remote, Some(*local)).map(|_| ()))
            });
            if let Err(error) = made {
                neighbourhood.failures.push(format!("{now:?}: cannot connect to {remote}: {error}"));
            }
        }
    }

    /// An application begins to reach its far end, if that is its part.
    pub fn start(&mut self, now: Time, app: usize) {
        self.apps[app].start(now, &mut self.node);
        if let (Some(neighbourhood), Some(session)) = (&mut self.neighbourhood, self.apps[app].session()) {
            neighbourhood.sessions.insert(session, app);
        }
    }

    fn handle_event(&mut self, now: Time, event: Event) {
        let Some(neighbourhood) = &mut self.neighbourhood else {
            return self.apps[0].on_event(now, &mut self.node, event);
        };
        let (first, app) = neighbourhood.sort(now, &self.apps, &event);
        let Some(app) = app.and_then(|i| self.apps.get_mut(i)) else { return };
        for event in first.into_iter().chain([event]) {
            app.on_event(now, &mut self.node, event);
        }
    }
}

impl Neighbourhood {
    /// The application that an event is for, and an event that it is to hear of first. None: it was for the node, or for nobody yet.
    fn sort(&mut self, now: Time, apps: &[App], event: &Event) -> (Option<Event>, Option<usize>) {
        let mut first = None;
        let app = match event {
            Event::LinkUp { link, peer, .. } => {
                self.up.insert(*peer, *link);
                None
            }
            Event::LinkDown { link, reason, .. } => {
                self.up.retain(|_, up| up != link);
                // A link that no session needs is not kept alive (P23); where one did need it, its flow says so.
                if !reason.is_clean() && reason.code != Code::IdleTimeout && self.failures.len() < 8 {
                    self.failures.push(format!("{now:?}: link down: {reason}"));
                }
                None
            }
            Event::LinkSilent { .. } | Event::PathChanged { .. } | Event::TargetRate { .. } | Event::LinkRefused { .. } => None,
            Event::SessionIncoming { session, .. } => {
                self.unknown.insert(*session, event.clone());
                None
            }
            Event::FlowIncoming { session, flow, options } => {
                if let Some(incoming) = self.unknown.remove(session)
                    && let Some(app) = apps.iter().position(|app| app.number() == flow_number(options.tag))
                {
                    self.sessions.insert(*session, app);
                    first = Some(incoming);
                }
                let app = self.sessions.get(session).copied();
                self.flows.extend(app.map(|app| (*flow, app)));
                app
            }
            Event::SessionOpened { session, .. } | Event::SessionClosing { session, .. } | Event::SessionClosed { session, .. } => {
                self.sessions.get(session).copied()
            }
            Event::FlowReadable(flow) | Event::FlowWritable(flow) | Event::FlowFinished(flow) | Event::FlowDelivered(flow) => {
                self.app_of(apps, *flow)
            }
            Event::FlowClosed { flow, .. } => self.app_of(apps, *flow),
            other => {
                self.failures.push(format!("{now:?}: an event that the host does not know: {other:?}"));
                None
            }
        };
        (first, app)
    }

    fn app_of(&mut self, apps: &[App], flow: FlowId) -> Option<usize> {
        if let Some(&app) = self.flows.get(&flow) {
            return Some(app);
        }
        let app = apps.iter().position(|app| app.has_flow(flow))?;
        self.flows.insert(flow, app);
        Some(app)
    }
}

impl<N: Machine> Host for NodeHost<N> {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]) {
        self.node.handle_datagram(now, remote, Some(local), ecn, data);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.node.poll_timeout().is_some_and(|at| at <= now) {
            self.node.handle_timeout(now);
        }
        for app in &mut self.apps {
            if app.next_time().is_some_and(|at| at <= now) {
                app.on_time(now, &mut self.node);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.node.poll_transmit(now, MAX_SEGMENTS, buf)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let apps = self.apps.iter().filter_map(App::next_time).min();
        [self.node.poll_timeout(), apps].into_iter().flatten().min()
    }

    fn pump(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.node.poll_event() {
            any = true;
            self.handle_event(now, event);
        }
        if let Some(TraceSink(hear)) = &mut self.trace {
            while let Some(event) = self.node.poll_trace() {
                hear(event);
            }
        }
        any
    }
}
