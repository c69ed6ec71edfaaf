//! Moves packets of flows that take several routes to their parts, opens parts and gives them up.

use super::{MAX_PARTS, Part, Room, Spread, WORTH_A_ROUTE};
use crate::error::Code;
use crate::flow::Symbol;
use crate::flows::{floor_of, options_of};
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId};
use crate::link::{Control, symbol_ceiling};
use crate::node::{Node, TimerKey};
use crate::options::{FlowKind, FlowOptions, Mode};
use crate::session::{SendHalf, SendLimits};
use crate::stats::{FlowStats, RouteStats};
use crate::switch::{self, Mechanism};
use crate::units::Time;
use crate::wire::frame::{FlowOpen, Relayed};
use crate::wire::varint;
use smallvec::SmallVec;
use std::net::IpAddr;

impl Node {
    /// A data flow of this session takes several routes if there are several that are equally good, unless it is to keep to one.
    pub(in crate::node) fn is_to_spread(&self, session: SessionId, options: &FlowOptions) -> bool {
        let Some(far) = self.sessions.entry(session).and_then(|e| e.far.address()) else { return false };
        let may_spread = match options.mode {
            Mode::Brtp => true,
            Mode::Btp => !switch::is_off(Mechanism::SpreadDatagrams),
            Mode::Transparent => false,
        };
        may_spread
            && !options.one_route
            && self.shared.config.several_routes
            && !switch::is_off(Mechanism::Spreading)
            && self.ways_at_once(far) > 1
    }

    /// Links by which a flow may go at once, best first.
    fn links_for(&mut self, now: Time, session: SessionId, far: IpAddr) -> SmallVec<[LinkId; 4]> {
        let shunned = self.altering(now, session);
        let mut links = self.links_at_once(far);
        links.retain(|link| !shunned.contains(link));
        // All routes that are meant for this are gone: whatever else leads there.
        if links.is_empty() {
            links.extend(self.next_hop(far, &shunned).or_else(|| self.next_hop(far, &[])));
        }
        links
    }

    /// Something changed for a flow that takes several routes: gives its parts what they have room for.
    pub(in crate::node) fn feed(&mut self, now: Time, flow: FlowId) {
        let Some(mut spread) = self.spreads.remove(&flow) else { return };
        let session = spread.session;
        spread.expire(now);
        self.feed_parts(now, &mut spread);
        if let Some(floor) = spread.take_skip(now)
            && let Some(entry) = self.sessions.entry_mut(session)
        {
            entry.session.tell_skip(flow, floor);
            self.pump_session(now, session);
        }
        let look_at = spread.look_at(now);
        self.timers.set(TimerKey::Spread(flow), look_at);
        let links: SmallVec<[LinkId; 4]> = spread.parts.iter().map(|part| part.link).collect();
        let kept = spread.kept_bytes;
        self.spreads.insert(flow, spread);
        for link in links {
            self.mark_ready(link);
            self.rearm(link);
        }
        if let Some(whole) = self.shared.flows.out_mut(flow) {
            whole.kept_bytes = kept;
        }
        self.look_at_out(now, flow);
        self.note_sending(now, session);
        self.end_if_settled(now, flow);
    }

    /// Of a flow of datagrams that has ended everything is there or too old: it is over, whatever the far end knows of it.
    fn end_if_settled(&mut self, now: Time, flow: FlowId) {
        let Some(spread) = self.spreads.get_mut(&flow).filter(|s| s.is_lossy) else { return };
        let Some(whole) = self.shared.flows.out(flow) else { return };
        let (packets, session) = (whole.source.packets(), spread.session);
        if !whole.is_end_told || !whole.source.is_drained() || spread.acked < packets {
            return;
        }
        let skip = spread.take_last_skip();
        if let Some(entry) = self.sessions.entry_mut(session) {
            if let Some(floor) = skip {
                entry.session.tell_skip(flow, floor);
            }
            entry.session.flow_finished(now, flow, packets);
            entry.session.flow_delivered(now, flow);
        }
        self.on_flow_delivered(now, flow);
    }

    /// The same for all of a session.
    pub(in crate::node) fn feed_session(&mut self, now: Time, session: SessionId) {
        let flows: Vec<FlowId> = self.spreads.values().filter(|s| s.session == session).map(|s| s.flow).collect();
        flows.into_iter().for_each(|flow| self.feed(now, flow));
    }

    /// Time passed: what is overdue goes by another route.
    pub(in crate::node) fn on_spread_timeout(&mut self, now: Time, flow: FlowId) {
        let Some(far) = self.spreads.get(&flow).and_then(|s| self.session_far(s.session)) else { return };
        let routes = self.links_at_once(far).len();
        let Some(spread) = self.spreads.get_mut(&flow) else { return };
        let lost = spread.look(now, routes > 1);
        for at in lost.into_iter().rev() {
            self.lose_part(now, flow, at);
        }
        self.feed(now, flow);
    }

    fn feed_parts(&mut self, now: Time, spread: &mut Spread) {
        let whole = spread.flow;
        let Some(entry) = self.sessions.entry(spread.session) else { return };
        let Some(far) = entry.far.address() else { return };
        if entry.securing.as_ref().is_none_or(|s| !s.has_keys()) {
            return;
        }
        let links = self.links_for(now, spread.session, far);
        let mut touched: SmallVec<[usize; 4]> = SmallVec::new();
        loop {
            while spread.again.first().is_some_and(|number| !spread.is_wanted(now, *number)) {
                spread.again.pop_first();
            }
            let Some(source) = self.shared.flows.out(whole).map(|f| &f.source) else { return };
            let again: u64 = spread.again.len() as u64 * u64::from(spread.symbol.unwrap_or(0));
            let fresh = match spread.next() < spread.limit && source.has_data(now) {
                true if source.is_blocked() => u64::MAX,
                true => source.buffered() as u64,
                false => 0,
            };
            let waiting = fresh.saturating_add(again);
            let has_fresh = spread.next() < spread.limit && source.has_data(now);
            // The far end hears of a flow without data, too.
            let is_silent = waiting == 0 && !has_fresh;
            if is_silent && (spread.is_heard || !spread.parts.is_empty()) {
                break;
            }
            let (buffered, kind) = (source.buffered(), source.kind());
            self.open_parts(now, spread, &links, waiting);
            if is_silent {
                if !spread.parts.is_empty() && self.give_piece(now, spread, 0, 0, &[]) {
                    touched.push(0);
                }
                break;
            }
            let mut rooms: SmallVec<[Room; 4]> = spread.parts.iter().map(|part| self.room_of(part)).collect();
            let packet = u64::from(spread.symbol.unwrap_or(1200));
            let Some(source) = self.shared.flows.out_mut(whole).map(|f| &mut f.source) else {
                return;
            };
            let life = match spread.again.first() {
                Some(number) => spread.life(*number),
                None => source.front_life().filter(|_| spread.is_lossy),
            };
            let is_again = !spread.again.is_empty();
            let mut is_dropped = false;
            let chosen = loop {
                let Some(at) = spread.choose(waiting, packet, &rooms) else {
                    let has_waited = !is_again && source.has_waited_half(now);
                    break if has_waited { spread.last_resort(packet, &rooms) } else { None };
                };
                if !spread.is_too_late(now, at, &rooms[at], packet, life) {
                    break Some(at);
                }
                // What comes behind it may still go that way.
                is_dropped = !is_again && source.drop_overdue(now, spread.route_time_behind(at, &rooms[at], packet));
                if is_dropped {
                    break None;
                }
                // Where that is how long the fastest takes, or seems to take, it goes all the same.
                if spread.is_fastest(at) {
                    break Some(at);
                }
                rooms[at].packets = 0;
            };
            if is_dropped {
                continue;
            }
            let Some(at) = chosen else { break };
            let number = match spread.again.pop_first() {
                Some(number) => number,
                None => {
                    // A packet that could be fuller waits while its route has something to send.
                    let is_short = (buffered as u64) < packet && kind == FlowKind::Stream;
                    let is_over = self.is_ending(whole);
                    if (is_short && rooms[at].unsent > 0 && !is_over) || spread.kept_bytes > self.allowed_of(whole) {
                        break;
                    }
                    let number = spread.next();
                    let Some(flow) = self.shared.flows.out_mut(whole) else { return };
                    let overhead = crate::crypto::SESSION_OVERHEAD + varint::size(number.max(1 << 14));
                    let Some(made) = flow.source.poll_symbol(now, (packet as usize).saturating_sub(overhead)) else { break };
                    spread.keep(now, made.symbol.payload(), made.deadline.filter(|_| spread.is_lossy));
                    number
                }
            };
            let Some(packet) = spread.kept_at(number).map(|kept| kept.packet.clone()) else { continue };
            if self.give_piece(now, spread, at, number, &packet) && !touched.contains(&at) {
                touched.push(at);
            }
        }
        for at in 0..spread.parts.len() {
            let room = self.room_of(&spread.parts[at]);
            for number in spread.probes_for(now, &spread.parts[at], &room) {
                let Some(packet) = spread.kept_at(number).map(|kept| kept.packet.clone()) else { continue };
                if self.give_probe(now, spread, at, number, &packet) && !touched.contains(&at) {
                    touched.push(at);
                }
            }
        }
        let has_more = !spread.again.is_empty() || self.shared.flows.out(whole).is_some_and(|f| f.source.has_data(now));
        let packet = u64::from(spread.symbol.unwrap_or(1200));
        for (at, part) in spread.parts.iter().enumerate() {
            let low_water = if has_more { part.supply(packet) / 2 + 1 } else { 0 };
            if let Some(flow) = self.shared.flows.out_mut(part.flow) {
                // One that could be given nothing now is asked again when something of it changes, not at once.
                flow.low_water = match flow.sender.unsent() {
                    0 if flow.sender.room() > 0 => 0,
                    unsent if unsent < low_water && flow.sender.room() > 0 => 1,
                    _ => low_water,
                };
            }
            if touched.contains(&at) {
                self.touch_out(now, part.flow);
                self.shared.settle_out(part.flow);
            }
        }
    }

    /// Gives a part a packet of the whole; one without bytes tells the far end of the flow and no more.
    fn give_piece(&mut self, now: Time, spread: &mut Spread, at: usize, number: u64, packet: &[u8]) -> bool {
        let deadline = spread.deadline(number);
        let Some(part) = spread.parts.get_mut(at) else { return false };
        let Some(bytes) = self.push_piece(now, part, number, packet, deadline) else { return false };
        part.give(now, number, bytes);
        true
    }

    /// The same with a copy of what another part was given.
    fn give_probe(&mut self, now: Time, spread: &mut Spread, at: usize, number: u64, packet: &[u8]) -> bool {
        let deadline = spread.deadline(number);
        let Some(part) = spread.parts.get_mut(at) else { return false };
        let is_given = self.push_piece(now, part, number, packet, deadline).is_some();
        if is_given {
            part.give_probe(now, number);
        }
        is_given
    }

    fn push_piece(&mut self, now: Time, part: &Part, number: u64, packet: &[u8], deadline: Option<Time>) -> Option<usize> {
        let flow = self.shared.flows.out_mut(part.flow)?;
        let sealed = flow.source.seal_piece(number, packet)?;
        let bytes = sealed.len();
        flow.sender.push(now, Symbol::whole(sealed), deadline);
        Some(bytes)
    }

    fn room_of(&self, part: &Part) -> Room {
        let sender = self.shared.flows.out(part.flow).map(|f| &f.sender);
        sender.map_or_else(Room::default, |s| Room { unsent: s.unsent(), packets: s.room() })
    }

    fn is_ending(&self, whole: FlowId) -> bool {
        self.shared.flows.out(whole).is_some_and(|f| f.source.is_finished())
    }

    fn allowed_of(&self, whole: FlowId) -> usize {
        let flow = self.shared.flows.out(whole);
        flow.map_or(0, |f| self.shared.ledger.allowed(&f.account).saturating_sub(f.source.memory()))
    }

    /// Every route that is worth it has a part.
    fn open_parts(&mut self, now: Time, spread: &mut Spread, links: &[LinkId], waiting: u64) {
        for &link in links {
            let is_worth = spread.parts.is_empty() || waiting >= WORTH_A_ROUTE || !spread.again.is_empty();
            let is_open = spread.parts.iter().any(|part| part.link == link);
            if is_worth && !is_open && !spread.is_banned(now, link) && spread.parts.len() < MAX_PARTS {
                self.open_part(now, spread, link);
            }
        }
    }

    fn open_part(&mut self, now: Time, spread: &mut Spread, on: LinkId) -> Option<()> {
        let whole = self.shared.flows.out(spread.flow)?.open.clone();
        let link = self.links.get(&on)?;
        let ends = whole.relayed?;
        let number = spread.made + 1;
        let mut open = FlowOpen {
            label: FlowLabel(0),
            symbol: spread.symbol.unwrap_or_else(|| symbol_ceiling(&self.shared.config)),
            relayed: Some(Relayed {
                incarnation: 0,
                first: Seq(0),
                fits: link.fits(whole.batch_size, &self.shared),
                part: number,
                proof: None,
                ..ends
            }),
            ..whole
        };
        let account = self.shared.ledger.open(floor_of(&open).working(), self.shared.config.flow_memory)?;
        let mut source = SendHalf::new(&options_of(&open), SendLimits { buffer: 0, max_message: 0 });
        let securing = self.sessions.entry_mut(spread.session)?.securing.as_mut()?;
        if securing.equip_out(&mut open, &mut source).is_err() {
            self.shared.ledger.close(&account);
            return None;
        }
        spread.made = number;
        spread.symbol = Some(open.symbol);
        let id = self.shared.next_flow_id();
        self.add_out(now, id, spread.session, open, source, account, Some(on));
        spread.parts.push(Part::new(now, number, on, id));
        Some(())
    }

    /// A part does not go on; its route is tried again later.
    fn lose_part(&mut self, now: Time, flow: FlowId, at: usize) {
        let Some(spread) = self.spreads.get_mut(&flow) else { return };
        if at >= spread.parts.len() {
            return;
        }
        let part = spread.take_part(at);
        spread.ban(now, part.link);
        let session = spread.session;
        self.drop_part(session, &part);
    }

    /// Forgets what a link has of a part; the next node is told.
    fn drop_part(&mut self, session: SessionId, part: &Part) {
        let Some(flow) = self.remove_out(part.flow) else { return };
        if let Some(link) = self.links.get_mut(&part.link).filter(|l| l.is_up() && flow.is_announced) {
            link.send_control(Control::FlowReset { flow: flow.open.label, reason: Code::Rerouted as u64 });
        }
        self.note_ended(Some(part.link), session, true, flow.open.index, FlowStats { app_bytes: 0, ..flow.stats() });
        self.mark_ready(part.link);
    }

    /// The flow is over.
    pub(in crate::node) fn drop_spread(&mut self, flow: FlowId) {
        let Some(spread) = self.spreads.remove(&flow) else { return };
        self.timers.set(TimerKey::Spread(flow), None);
        spread.parts.iter().for_each(|part| self.drop_part(spread.session, part));
    }

    /// The hop of a part is closed: its route ends here.
    pub(in crate::node) fn on_part_refused(&mut self, now: Time, session: SessionId, index: u64, number: u64) {
        let Some(flow) = self.sessions.entry(session).and_then(|e| e.session.flows().outgoing(index)) else { return };
        let at = self.spreads.get(&flow).and_then(|s| s.parts.iter().position(|p| p.number == number));
        if let Some(at) = at {
            self.lose_part(now, flow, at);
            self.feed(now, flow);
        }
    }

    /// Routes or links have changed: parts whose link is gone or silent are given up, if there is another route.
    pub(in crate::node) fn revise_spreads(&mut self, now: Time) {
        let flows: Vec<FlowId> = self.spreads.keys().copied().collect();
        for flow in flows {
            let Some(far) = self.spreads.get(&flow).and_then(|s| self.session_far(s.session)) else { continue };
            let usable = self.links_at_once(far);
            let Some(spread) = self.spreads.get(&flow) else { continue };
            let is_gone = |part: &Part| self.links.get(&part.link).is_none_or(|l| !l.is_usable());
            let lost: SmallVec<[usize; 2]> = (0..spread.parts.len())
                .filter(|at| is_gone(&spread.parts[*at]) || (!usable.is_empty() && !usable.contains(&spread.parts[*at].link)))
                .collect();
            for at in lost.into_iter().rev() {
                self.lose_part(now, flow, at);
            }
            self.feed(now, flow);
        }
    }

    /// The far end's session has more of a part.
    pub(in crate::node) fn on_part_delivered(&mut self, now: Time, flow: FlowId, number: u64, packets: u64) {
        let Some(spread) = self.spreads.get_mut(&flow) else { return };
        let Some((link, count, bytes)) = spread.on_part_delivered(now, number, packets) else { return };
        let part = spread.parts.iter().find(|p| p.number == number).map(|p| p.flow);
        let session = spread.session;
        if let Some(entry) = self.sessions.entry_mut(session) {
            entry.routes.entry(link).or_default().note_sent(count, bytes);
        }
        if let Some(part) = part {
            if let Some(f) = self.shared.flows.out_mut(part) {
                f.sender.on_delivered(Seq(packets));
            }
            self.touch_out(now, part);
            self.shared.settle_out(part);
        }
        self.feed(now, flow);
    }

    /// What the parts of a flow have counted, beside the flow itself.
    pub(in crate::node) fn add_part_stats(&self, flow: FlowId, stats: &mut FlowStats) {
        for part in self.spreads.get(&flow).into_iter().flat_map(|s| &s.parts) {
            if let Some(f) = self.shared.flows.out(part.flow) {
                stats.add(&f.stats());
            }
        }
    }

    /// What the data flows of a session that take several routes at once have carried by each link, from end to end.
    pub fn session_routes(&self, session: SessionId) -> Vec<(LinkId, RouteStats)> {
        self.sessions.entry(session).map(|e| e.routes.iter().map(|(link, stats)| (*link, *stats)).collect()).unwrap_or_default()
    }
}
