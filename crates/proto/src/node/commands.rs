//! What an application commands: links, sessions, flows, messages, bytes.

use super::known::Known;
use super::sessions::Far;
use super::{Message, Node, Orphan, SessionAccess};
use crate::congestion::CongestionControl;
use crate::crypto::{PublicKey, SharedKey};
use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::event::Event;
use crate::flows::{Flows, InFlow, OutFlow};
use crate::ids::{FlowId, LinkId, PathId, SessionId};
use crate::link::handshake::Handshake;
use crate::link::initiate::Initiating;
use crate::link::{Link, LinkState};
use crate::options::{FlowKind, FlowOptions, MessageOptions};
use crate::path::{Address, MAX_PATHS};
use crate::session::CONTROL_INDEX;
use crate::stats::{FlowStats, FlowTotals, LinkStats, Memory};
use crate::trace::What;
use crate::units::{Bandwidth, Duration, Time};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// What a session without a link is said to run over.
pub(super) const NO_LINK: LinkId = LinkId(0);

impl Node {
    /// Starts a link to a neighbour. `peer`: the key that it must have; `None` accepts whatever key answers (the caller decides on `LinkUp`).
    pub fn connect(&mut self, now: Time, remote: SocketAddr, peer: Option<PublicKey>) -> Result<LinkId, CommandError> {
        self.begin_link(now, remote, peer, false)
    }

    /// Asks whether the node with this key takes handshakes at an address; the link that stands for the question never comes up. Its `LinkDown` has the
    /// code `NoError` if the answer is yes. The far end forgets that it was asked (docs/decisions/0051).
    pub fn ask(&mut self, now: Time, remote: SocketAddr, peer: Option<PublicKey>) -> Result<LinkId, CommandError> {
        self.begin_link(now, remote, peer, true)
    }

    fn begin_link(&mut self, now: Time, remote: SocketAddr, peer: Option<PublicKey>, is_question: bool) -> Result<LinkId, CommandError> {
        // Links that others opened, half of them or whole, do not count: nobody keeps this node from calling.
        if self.initiated >= self.shared.config.max_links {
            return Err(CommandError::Limit { what: "links", limit: self.shared.config.max_links });
        }
        let id = self.shared.next_link_id();
        let initiating = Initiating::start(now, id, remote, peer, &mut self.shared);
        let mut link = Link::new(id, now, LinkState::Handshaking(Handshake::Initiator(Box::new(initiating))));
        link.is_initiator = true;
        link.is_question = is_question;
        link.trace = self.shared.tracer.of(id);
        link.trace.emit(now, || What::LinkStarted { remote });
        self.links.insert(id, Box::new(link));
        self.initiated += 1;
        self.settle(now, id);
        Ok(id)
    }

    /// Adds a path to a link: another way to the same neighbour, from another address of this host or to another of the neighbour's. It is opened
    /// once the link is up, and tried again as long as it does not answer; [`Event::PathChanged`] tells. `local`: the address to send from; `None`
    /// leaves it to the system.
    ///
    /// # Errors
    /// The link is over or unknown; it has as many paths as a link may have.
    pub fn add_path(&mut self, now: Time, link: LinkId, remote: SocketAddr, local: Option<IpAddr>) -> Result<PathId, CommandError> {
        let l = self.links.get_mut(&link).ok_or(CommandError::Unknown("link"))?;
        if !l.is_usable() {
            return Err(CommandError::Closed(CloseReason::local(Code::Shutdown, Layer::Link, "the link is closing")));
        }
        let path = l.plan_path(Address { remote, local }, &mut self.shared);
        let path = path.ok_or(CommandError::Limit { what: "paths of a link", limit: MAX_PATHS })?;
        self.settle(now, link);
        Ok(path)
    }

    /// Replaces the keys that may open links ([`NodeConfig::authorised`](super::NodeConfig::authorised)) and sessions over relays
    /// ([`NodeConfig::sessions_from`](super::NodeConfig::sessions_from)) from now on. Links that are up stay, which their owner ends; sessions over relays that a far end
    /// opened which may not do so any more are closed.
    pub fn set_authorised(&mut self, now: Time, links: Option<Vec<PublicKey>>, sessions: SessionAccess) {
        self.shared.config.authorised = links;
        self.shared.config.sessions_from = sessions;
        for id in self.sessions.opened_by_strangers(|key| self.shared.may_open_sessions(key)) {
            self.fail_session(
                now,
                id,
                CloseReason::local(Code::NotAuthorised, Layer::Session, "this key may not open sessions here any more"),
            );
        }
    }

    /// Replaces the pre-shared keys of single neighbours ([`NodeConfig::neighbour_psks`](super::NodeConfig::neighbour_psks)) from now on; links that are up
    /// stay.
    pub fn set_neighbour_psks(&mut self, psks: BTreeMap<PublicKey, SharedKey>) {
        self.shared.config.neighbour_psks = psks;
    }

    /// Ends a link and all that runs over it, at once.
    pub fn close_link(&mut self, now: Time, link: LinkId, code: u64, reason: &str) -> Result<(), CommandError> {
        let l = self.links.get_mut(&link).ok_or(CommandError::Unknown("link"))?;
        l.close(now, CloseReason::application(code, reason));
        self.settle(now, link);
        Ok(())
    }

    /// Ends a link without telling the neighbour, which is known to be gone; all that runs over it ends with this reason.
    pub fn abandon_link(&mut self, now: Time, link: LinkId, reason: CloseReason) {
        if let Some(l) = self.links.get_mut(&link) {
            l.abandon(reason);
            self.settle(now, link);
        }
    }

    /// Addresses of a link's first path: the far one, and the near one if packets are sent from a particular one.
    pub fn link_address(&self, link: LinkId) -> Option<(SocketAddr, Option<IpAddr>)> {
        let path = self.links.get(&link)?.paths.values().next()?;
        Some((path.remote(), path.local()))
    }

    /// Changes the congestion control of a link's paths, which start afresh with it; paths that come later get that of the configuration.
    pub fn set_congestion(&mut self, now: Time, link: LinkId, congestion: CongestionControl) -> Result<(), CommandError> {
        let l = self.links.get_mut(&link).ok_or(CommandError::Unknown("link"))?;
        l.paths.values_mut().for_each(|p| p.set_congestion(now, congestion));
        self.settle(now, link);
        Ok(())
    }

    /// Datagrams leave from another address of this host from now on (another socket, another network): every link shows its neighbour where it is,
    /// under fresh connection ids, and begins to learn the way anew (P7). What is under way goes on.
    pub fn migrate(&mut self, now: Time) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            self.migrate_link(now, link);
        }
    }

    /// The same for one link.
    pub fn migrate_link(&mut self, now: Time, link: LinkId) {
        if let Some(l) = self.links.get_mut(&link) {
            l.move_away(now);
            self.settle(now, link);
        }
    }

    /// The host's route to `remote` is believed to take datagrams of `size` bytes of UDP payload now. Told when a link begins, and whenever it changes: paths
    /// that go there use this size, and try larger ones again later.
    pub fn on_route_size(&mut self, now: Time, remote: IpAddr, size: u16) {
        let remote = remote.to_canonical();
        self.for_links(now, |link, _| link.on_route(now, remote, size));
    }

    /// The own system refused to send datagrams of `size` bytes to `remote`, which [`poll_transmit`](Self::poll_transmit) gave at `since`. What they carried is
    /// made again at once, in smaller ones.
    pub fn on_size_refused(&mut self, now: Time, remote: SocketAddr, size: u16, since: Time) {
        self.for_links(now, |link, flows| link.on_refused(now, remote, size, since, flows));
    }

    fn for_links(&mut self, now: Time, mut told: impl FnMut(&mut Link, &mut Flows) -> bool) {
        let flows = &mut self.shared.flows;
        let links: Vec<LinkId> = self.links.iter_mut().filter_map(|(id, link)| told(link, flows).then_some(*id)).collect();
        for link in links {
            self.settle(now, link);
        }
    }

    /// Opens a flow towards the far end. It can be written at once.
    pub fn open_flow(&mut self, now: Time, session: SessionId, options: FlowOptions) -> Result<FlowId, CommandError> {
        self.open_session_flow(now, session, options)
    }

    /// Queues a message; returns its number.
    pub fn send_message(&mut self, now: Time, flow: FlowId, data: Bytes, options: MessageOptions) -> Result<u64, CommandError> {
        self.with_out(now, flow, |f| f.source.send_message(now, data, options))
    }

    /// Withdraws a message that has not been sent completely; true if it will not be delivered.
    pub fn cancel_message(&mut self, now: Time, flow: FlowId, message: u64) -> Result<bool, CommandError> {
        self.with_out(now, flow, |f| Ok(f.source.cancel(message)))
    }

    /// Queues bytes on a stream; returns how many were taken (at least 1) or `Blocked`.
    pub fn write(&mut self, now: Time, flow: FlowId, data: &[u8]) -> Result<usize, CommandError> {
        self.with_out(now, flow, |f| f.source.write(data))
    }

    /// The same without a copy: takes the front of `data`, at least 1 byte, or says `Blocked`.
    pub fn write_chunk(&mut self, now: Time, flow: FlowId, data: &mut Bytes) -> Result<usize, CommandError> {
        self.with_out(now, flow, |f| f.source.write_chunk(data))
    }

    /// The next message, if one is complete.
    pub fn recv_message(&mut self, now: Time, flow: FlowId) -> Result<Option<Message>, CommandError> {
        self.with_in(now, flow, |f| Ok(f.sink.recv_message()))
    }

    /// The next bytes of a stream, without copying: at most `max` of them. `Ok(None)`: nothing now; an empty chunk: the stream has ended.
    pub fn read(&mut self, now: Time, flow: FlowId, max: usize) -> Result<Option<Bytes>, CommandError> {
        let chunk = self.with_in(now, flow, |f| {
            let chunk = f.sink.read(max);
            f.is_end_read |= chunk.as_ref().is_some_and(Bytes::is_empty);
            Ok(chunk)
        })?;
        if chunk.as_ref().is_some_and(Bytes::is_empty) {
            self.forget_read_flow(now, flow);
        }
        Ok(chunk)
    }

    /// Sending half: nothing more follows; `FlowDelivered` tells when everything arrived.
    pub fn finish(&mut self, now: Time, flow: FlowId) -> Result<(), CommandError> {
        self.with_out(now, flow, |f| {
            f.source.finish();
            Ok(())
        })
    }

    /// Sending half: give up at once. The far end is told; the flow is gone here.
    pub fn reset(&mut self, now: Time, flow: FlowId, code: u64) -> Result<(), CommandError> {
        let known = self.known(flow, true)?;
        self.give_up(now, flow, known, code);
        Ok(())
    }

    /// Receiving half: no more wanted. The far end is told; the flow is gone here.
    pub fn stop(&mut self, now: Time, flow: FlowId, code: u64) -> Result<(), CommandError> {
        let known = self.known(flow, false)?;
        if let Some(orphan) = self.orphans.remove(&flow) {
            self.release_orphan(orphan);
            return Ok(());
        }
        self.give_up(now, flow, known, code);
        Ok(())
    }

    /// Bytes per second that applications should produce over a link, as [`Event::TargetRate`] tells. `None`: its congestion control tells none.
    pub fn target_rate(&self, link: LinkId) -> Option<Bandwidth> {
        self.links.get(&link)?.target_rate()
    }

    /// Statistics of a link and its paths.
    pub fn link_stats(&self, link: LinkId) -> Option<LinkStats> {
        Some(LinkStats { spans: self.link_spans(link), ..self.links.get(&link)?.stats(&self.shared.flows) })
    }

    /// The far end's address on a link's first path, for less than [`link_stats`](Self::link_stats), which adds up all flows of the link.
    pub fn link_remote(&self, link: LinkId) -> Option<SocketAddr> {
        self.links.get(&link)?.paths.values().next().map(|path| path.remote())
    }

    /// Sums over the data flows of a session, ended ones included.
    pub fn session_stats(&self, session: SessionId) -> Option<FlowTotals> {
        let mut totals = self.sessions.ended_flows(session)?.clone();
        self.shared.flows.add_flows_of(&mut totals, session);
        Some(totals)
    }

    /// Statistics of a flow. They vanish with the flow: after `FlowDelivered`, `FlowFinished` was read, or a reset; those of its session and its
    /// link keep them.
    pub fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        if let Some(orphan) = self.orphans.get(&flow) {
            return Some(orphan.flow.stats());
        }
        if !self.known.get(flow)?.is_outgoing {
            return self.shared.flows.incoming(flow).map(InFlow::stats);
        }
        let mut stats = self.shared.flows.out(flow).map(OutFlow::stats)?;
        self.add_part_stats(flow, &mut stats);
        Some(stats)
    }

    /// The link that a session runs over; [`LinkId`] 0, which no link has, while none carries it.
    pub fn session_link(&self, session: SessionId) -> Option<LinkId> {
        self.sessions.entry(session).map(|e| e.link.unwrap_or(NO_LINK))
    }

    /// The sessions that run over a link now. As many steps as there are of them.
    pub fn sessions_over(&self, link: LinkId) -> Vec<SessionId> {
        self.sessions.on_link(link)
    }

    /// Memory in use and its bound.
    pub fn memory(&self) -> Memory {
        self.shared.ledger.memory()
    }

    fn known(&self, flow: FlowId, is_outgoing: bool) -> Result<Known, CommandError> {
        let known = self.known.get(flow).ok_or(CommandError::Unknown("flow"))?;
        if known.is_outgoing != is_outgoing {
            return Err(CommandError::Misuse(if is_outgoing { "this is a receiving half" } else { "this is a sending half" }));
        }
        Ok(known)
    }

    fn with_out<T>(&mut self, now: Time, flow: FlowId, f: impl FnOnce(&mut OutFlow) -> Result<T, CommandError>) -> Result<T, CommandError> {
        let known = self.known(flow, true)?;
        let half = self.shared.flows.out_mut(flow).ok_or(CommandError::Unknown("flow"))?;
        half.look_at_limit(&self.shared.ledger);
        let result = f(half);
        self.look_at_out(now, flow);
        self.note_sending(now, known.session);
        self.feed(now, flow);
        result
    }

    fn with_in<T>(&mut self, now: Time, flow: FlowId, f: impl FnOnce(&mut InFlow) -> Result<T, CommandError>) -> Result<T, CommandError> {
        self.known(flow, false)?;
        if let Some(orphan) = self.orphans.get_mut(&flow) {
            let result = f(&mut orphan.flow);
            if orphan.flow.sink.is_finished()
                && (orphan.flow.is_end_read || orphan.flow.open.kind != FlowKind::Stream)
                && let Some(orphan) = self.orphans.remove(&flow)
            {
                self.events.push_back(Event::FlowFinished(flow));
                self.release_orphan(orphan);
            }
            return result;
        }
        let result = f(self.shared.flows.incoming_mut(flow).ok_or(CommandError::Unknown("flow"))?);
        self.look_at_in(now, flow);
        self.feed_starved(now);
        self.grant_whole(now, flow);
        result
    }

    /// Something was read: messages that waited for room in the shared budget may go on (P18).
    pub(super) fn feed_starved(&mut self, now: Time) {
        if self.shared.starved.is_empty() {
            return;
        }
        for id in core::mem::take(&mut self.shared.starved) {
            if let Some(flow) = self.shared.flows.incoming_mut(id) {
                flow.sink.retry();
                self.look_at_in(now, id);
            }
        }
    }

    /// The end of a stream was read: the flow goes.
    fn forget_read_flow(&mut self, now: Time, flow: FlowId) {
        if let Some(f) = self.shared.flows.incoming(flow) {
            let (has_all, on) = (f.sink.has_all(), f.on);
            self.end_in(now, flow, has_all);
            self.settle_at(now, on);
        }
    }

    fn release_orphan(&mut self, Orphan { flow, came_by }: Orphan) {
        self.shared.ledger.close(&flow.account);
        if self.known.remove(flow.id).is_some() {
            self.note_ended(came_by, flow.session, false, flow.open.index, flow.stats());
        }
    }

    /// Forgets an outgoing flow and gives its memory back.
    pub(super) fn drop_out(&mut self, id: FlowId) {
        let on = self.out_on(id);
        if let Some(flow) = self.remove_out(id) {
            self.known.remove(id);
            self.drop_spread(id);
            self.note_ended(on, flow.session, true, flow.open.index, flow.stats());
        }
    }

    /// Forgets an incoming flow and gives its memory back.
    pub(super) fn drop_in(&mut self, id: FlowId) {
        let on = self.in_on(id);
        if let Some(flow) = self.remove_in(id) {
            self.shared.ledger.close(&flow.account);
            self.known.remove(id);
            self.drop_join(id);
            self.note_ended(on, flow.session, false, flow.open.index, flow.stats());
        }
    }

    /// What a flow counted stays with its session, and with the link that carried it.
    pub(super) fn note_ended(&mut self, on: Option<LinkId>, session: SessionId, is_outgoing: bool, index: u64, stats: FlowStats) {
        if index == CONTROL_INDEX {
            return;
        }
        if let Some(link) = on.and_then(|on| self.links.get_mut(&on)) {
            link.ended.add_ended(is_outgoing, stats.clone());
        }
        self.sessions.note_ended(session, is_outgoing, stats);
    }

    /// A session over the neighbour's link; flows can be opened and written at once, even before the link is up.
    pub fn open_session(&mut self, now: Time, link: LinkId) -> Result<SessionId, CommandError> {
        let l = self.links.get(&link).ok_or(CommandError::Unknown("link"))?;
        if !l.is_usable() {
            return Err(CommandError::Closed(CloseReason::local(Code::Shutdown, Layer::Link, "the link is closing")));
        }
        self.create_session(now, Far::Neighbour(link), link, None)
    }

    /// Closes gracefully: everything written to `brtp` flows is delivered first (`SessionClosed` says whether it was), at most `linger` long.
    pub fn close_session(&mut self, now: Time, session: SessionId, code: u64, reason: &str, linger: Duration) -> Result<(), CommandError> {
        self.begin_close(now, session, code, reason, linger)
    }
}
