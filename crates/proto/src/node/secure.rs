//! Keys of relayed sessions: when each packet of the handshake is due, which keys may open a session, and what waits for keys (P16, P19, P20).
//!
//! The steps themselves are in `session/handshake.rs`. A session between neighbours has nothing of this: its link's keys cover the whole route.

mod attempts;
mod contenders;
mod keying;

use super::Node;
use super::delivery_monitor::DeliveryMonitor;
use super::renewal::Handover;
use super::sessions::Far;
use crate::admission::Host;
use crate::config::SessionAccess;
use crate::crypto::{CryptoError, PublicKey, SessionKeys, SharedKey};
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::ids::{FlowId, LinkId, SessionId, SessionKey};
use crate::link::Control;
use crate::neighbour::Neighbour;
use crate::options::Mode;
use crate::session::handshake::{self, AnswerStep, Credentials, Ends, Failure, Opening, Waiting};
use crate::session::{CONTROL_INDEX, RecvHalf, SendHalf, SessionRole};
use crate::shared::Shared;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use crate::wire::frame::FlowOpen;
use bytes::Bytes;
use smallvec::SmallVec;
use std::net::IpAddr;

/// An opener that does not go on with its handshake is forgotten after this long (P19).
const HALF_OPEN_LIFETIME: Duration = Duration::from_secs(5);
/// However slow its route is.
const LONGEST_HALF_OPEN: Duration = Duration::from_secs(60);

/// What a relayed session has beyond one between neighbours.
#[derive(Debug)]
pub(crate) struct Securing {
    ends: Ends,
    stage: Stage,
    /// Key that the far end must have.
    expected: Option<PublicKey>,
    /// The far end's key, proven by its handshake.
    peer: Option<PublicKey>,
    /// The far end's process, as its handshake said.
    restart_epoch: Option<u64>,
    keys: Option<SessionKeys>,
    /// Handshake packets for the front of our control flow, until it is opened.
    lead: Vec<Vec<u8>>,
    /// Largest symbol that reaches the far end uncut.
    symbol: Option<u16>,
    /// When a handshake that gets no further ends.
    deadline: Option<Time>,
    /// Opener: handshakes that came to nothing.
    attempts: u8,
    /// Acceptor: flows that were opened before the opener has proven its key.
    early: Vec<FlowId>,
    /// Acceptor: last messages that did not verify.
    forgeries: u32,
    /// Acceptor: the link whose tokens the answer took.
    paid_by: Option<Neighbour>,
    /// Acceptor: the opener's control flow begins again, with a packet 0 that was answered already.
    is_begun_again: bool,
    /// Opener: only asks which process the far end is.
    asks: bool,
    /// Acceptor: other hops by which the opener's control flow may come.
    contenders: contenders::Contenders,
    /// Handshake packets at the front of the far end's control flow.
    lead_in: u64,
    pub(super) monitor: DeliveryMonitor,
    /// Where the exchange that leads to the next keys stands, beside what the keys know of it.
    pub(super) handover: Handover,
    /// Opener: what a host on the route said, whose key nobody knows. It counts when the time is over, and no one else has answered.
    hearsay: Option<CloseReason>,
    /// Opener: all routes were tried; they are tried again then.
    again_at: Option<Time>,
}

/// All routes having been tried, they are tried again after this long.
const AGAIN: Duration = Duration::from_secs(1);
/// Handshakes that may come to nothing before the opener gives up.
const MAX_ATTEMPTS: u8 = 16;
/// Flows that may be opened by a far end that has not proven its key yet.
const MAX_EARLY: usize = 64;

#[derive(Debug)]
enum Stage {
    /// Opener: waits for the answer.
    Opening {
        opening: Box<Opening>,
        /// Asks which key is there, since what was written for the expected key could not be read.
        is_probe: bool,
    },
    /// Acceptor: waits for the first packet.
    Answering,
    /// Acceptor: the answer is being sent.
    Answered,
    /// Acceptor, XX: waits for packet 1.
    Waiting(Box<Waiting>),
    /// Acceptor, IK: keys stand, but the first packet may have been a replay.
    Unconfirmed,
    /// Both ends have the keys and know each other.
    Secured,
}

impl Securing {
    fn new(ends: Ends, stage: Stage, now: Time, lasts: Duration) -> Self {
        Self {
            ends,
            stage,
            expected: None,
            peer: None,
            restart_epoch: None,
            keys: None,
            lead: Vec::new(),
            symbol: None,
            deadline: Some(now + lasts),
            attempts: 0,
            early: Vec::new(),
            forgeries: 0,
            paid_by: None,
            is_begun_again: false,
            asks: false,
            contenders: Default::default(),
            lead_in: 1,
            monitor: DeliveryMonitor::new(now),
            handover: Handover::default(),
            hearsay: None,
            again_at: None,
        }
    }

    /// `patience`: as long as the opener may take at least to go on, where its route is known to be slow.
    pub(crate) fn accepting(far: Far, now: Time, patience: Duration) -> Option<Box<Self>> {
        let Far::Relayed { far, near } = far else { return None };
        let patience = if switch::is_off(Mechanism::SlowPaths) { Duration::ZERO } else { patience.min(LONGEST_HALF_OPEN) };
        let ends = Ends { opener: far, acceptor: near };
        Some(Box::new(Self::new(ends, Stage::Answering, now, HALF_OPEN_LIFETIME.max(patience))))
    }

    /// Opener: nothing is to be sent before the routes are tried again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.again_at.is_some()
    }

    /// Both ends have the keys and know each other.
    pub(super) fn is_secured(&self) -> bool {
        matches!(self.stage, Stage::Secured)
    }

    /// It becomes no session.
    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    /// Makes a question of it.
    pub(super) fn ask_only(&mut self) {
        self.asks = true;
    }

    /// The keys, if they stand.
    pub(super) fn keys(&mut self) -> Option<&mut SessionKeys> {
        self.keys.as_mut()
    }

    /// Generation of the keys.
    pub(super) fn generation(&self) -> u64 {
        self.keys.as_ref().map_or(0, |keys| keys.renewal.generation())
    }

    /// When the next keys are due.
    pub(super) fn renewal_due(&self) -> Option<Time> {
        let keys = self.keys.as_ref().filter(|_| self.is_secured() && !switch::is_off(Mechanism::SessionRenewal))?;
        keys.renewal.due(keys.packets())
    }

    /// Flows of the far end can be taken.
    pub(crate) fn takes_flows(&self) -> bool {
        self.keys.is_some() && self.early.len() < MAX_EARLY
    }

    /// The far end's key and process, once the far end has proven that it has the keys.
    pub(crate) fn far_process(&self) -> Option<(PublicKey, u64)> {
        self.peer.zip(self.restart_epoch).filter(|_| matches!(self.stage, Stage::Secured))
    }

    /// Acceptor: the first packet of the handshake is not here.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.stage, Stage::Answering)
    }

    /// The far end's key, proven.
    pub(super) fn peer(&self) -> Option<PublicKey> {
        self.peer
    }

    /// Keys stand.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// A flow was opened; true if it has to wait until the opener has proven its key.
    pub(crate) fn holds(&mut self, flow: FlowId) -> bool {
        let is_early = matches!(self.stage, Stage::Unconfirmed);
        if is_early {
            self.early.push(flow);
        }
        is_early
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let renewal = self.handover.poll_timeout(self.renewal_due());
        [self.deadline, self.monitor.poll_timeout(), renewal, self.again_at].into_iter().flatten().min()
    }

    /// Prepares a sending half: the control flow begins with the handshake, data waits for keys.
    pub(crate) fn equip_out(&mut self, open: &mut FlowOpen, source: &mut SendHalf) -> Result<(), CryptoError> {
        source.await_key();
        if open.index == CONTROL_INDEX {
            self.lead.drain(..).for_each(|packet| source.push_lead(packet));
        }
        self.key_out(open, source)
    }

    /// Gives a sending half its key, if there are keys.
    fn key_out(&mut self, open: &mut FlowOpen, source: &mut SendHalf) -> Result<(), CryptoError> {
        self.prove(open);
        let Some(keys) = &mut self.keys else { return Ok(()) };
        if let Some(symbol) = self.symbol.filter(|_| source.packets() == 0) {
            // P5: T as the destination saw it.
            open.symbol = open.symbol.min(symbol);
        }
        source.set_key(keys.send.flow(open)?);
        Ok(())
    }

    /// States with authority that this side opens the flow so.
    pub(super) fn prove(&self, open: &mut FlowOpen) {
        let proof = self.keys.as_ref().map(|keys| keys.send.opening_proof(open));
        if let Some(relayed) = &mut open.relayed {
            relayed.proof = proof;
        }
    }

    /// The far end opens the flow so, or it has no keys to say so with: a control flow that begins, or that comes by another route during the handshake.
    pub(super) fn believes_opening(&self, open: &FlowOpen) -> bool {
        if switch::is_off(Mechanism::OpeningProofs) {
            return true;
        }
        let relayed = open.relayed;
        let is_before_keys = open.index == CONTROL_INDEX
            && relayed.is_some_and(|r| r.proof.is_none() && (r.incarnation == 0 || !matches!(self.stage, Stage::Secured)));
        is_before_keys || self.keys.as_ref().is_some_and(|keys| keys.receive.proves_opening(open))
    }

    /// Whether an opening was made by the far end, whatever the stage. Where nobody asks for proofs, each was.
    pub(crate) fn proves_opening(&self, open: &FlowOpen) -> bool {
        switch::is_off(Mechanism::OpeningProofs) || self.keys.as_ref().is_some_and(|keys| keys.receive.proves_opening(open))
    }

    /// The same of a flow that is known and comes by another hop: once the keys are there, its source proves each.
    pub(crate) fn believes_reopening(&self, open: &FlowOpen) -> bool {
        if matches!(self.stage, Stage::Secured) { self.proves_opening(open) } else { self.believes_opening(open) }
    }

    /// Prepares a receiving half. `Err(UnknownFlow)`: too early, to be offered again.
    pub(crate) fn equip_in(&mut self, open: &FlowOpen, sink: &mut RecvHalf) -> Result<(), Code> {
        // Bare datagrams have no sequence numbers to seal them by.
        if open.mode == Mode::Transparent {
            return Err(Code::SessionProtocol);
        }
        let is_believed = self.believes_opening(open);
        match &mut self.keys {
            // Nobody else opens flows of this session.
            Some(_) if open.index != CONTROL_INDEX && !is_believed => Err(Code::Rerouted),
            Some(keys) if open.index != CONTROL_INDEX => {
                let mut key = keys.receive.flow(open).map_err(|e| e.code())?;
                self.handover.welcome(open, &mut key);
                sink.await_key(0);
                sink.set_key(key).map_err(|reason| reason.code)
            }
            _ if open.index != CONTROL_INDEX => Err(Code::UnknownFlow),
            // It begins again from the beginning, and nobody else can say so.
            Some(_) if !is_believed => Err(Code::Rerouted),
            Some(keys) => {
                sink.await_key(self.lead_in);
                sink.set_key(keys.receive.flow(open).map_err(|e| e.code())?).map_err(|reason| reason.code)
            }
            _ => {
                // The opener's first packet tells whether a second belongs to the handshake.
                sink.await_key(1);
                Ok(())
            }
        }
    }
}

impl Shared {
    fn credentials(&self) -> Credentials<'_> {
        Credentials {
            identity: &self.identity,
            psk: self.config.session_psk.as_ref().map(SharedKey::as_bytes),
            restart_epoch: self.restart_epoch,
        }
    }

    pub(super) fn may_open_sessions(&self, key: PublicKey) -> bool {
        match &self.config.sessions_from {
            SessionAccess::Anyone => true,
            SessionAccess::Keys(keys) => keys.contains(&key),
            SessionAccess::AsLinks => self.config.authorised.as_ref().is_none_or(|keys| keys.contains(&key)),
        }
    }

    /// The handshake of a session that is opened here.
    pub(crate) fn start_securing(
        &mut self,
        now: Time,
        far: Far,
        key: SessionKey,
        expected: Option<PublicKey>,
        is_probe: bool,
    ) -> Result<Option<Box<Securing>>, CloseReason> {
        let Far::Relayed { far, near } = far else { return Ok(None) };
        let ends = Ends { opener: near, acceptor: far };
        let mut rng = self.fork_rng();
        let started = Opening::start(self.credentials(), expected, is_probe, key, &ends, &mut rng);
        let (opening, packet) = started.map_err(|e| match e {
            Failure::Fatal(reason) => reason,
            Failure::Forged => CloseReason::local(Code::Internal, Layer::Session, "the handshake cannot begin"),
        })?;
        let stage = Stage::Opening { opening: Box::new(opening), is_probe };
        let securing = Securing::new(ends, stage, now, self.config.connect_timeout);
        Ok(Some(Box::new(Securing { expected, lead: vec![packet], ..securing })))
    }
}

impl Node {
    /// Links by which answers to an opener's earlier attempts went, which it has not taken up: another one may lead to it.
    pub(super) fn links_tried(&self, far: IpAddr) -> SmallVec<[LinkId; 4]> {
        self.sessions.unproven.of_far(far).filter_map(|id| self.sessions.link_of(id)).collect()
    }

    /// A session is opened over this link by a node that has not proven a key: where places are few, an older one of the same kind makes room (P19).
    pub(super) fn make_room_for_opener(&mut self, now: Time, from: Neighbour) {
        let Some(id) = self.sessions.unproven.in_the_way_of(from) else { return };
        // An honest opener begins again, and has a place for a round trip, which is all it needs.
        self.forget_opener(now, id, Code::UnknownSession, "others opened sessions by the same neighbour");
    }

    /// Nothing is computed for an opener. An honest one takes another route, or waits a second.
    fn refuse_opener(&mut self, now: Time, id: SessionId, text: &'static str) {
        self.forget_opener(now, id, Code::TooMany, text);
    }

    fn forget_opener(&mut self, now: Time, id: SessionId, code: Code, text: &'static str) {
        self.shared.counters.refused_sessions += 1;
        if let Some(control) = self.sessions.control_in(id) {
            self.refuse_in(control, code);
        }
        self.fail_session(now, id, CloseReason::local(Code::TooMany, Layer::Session, text));
    }

    /// The far end's static key, once it has proven to own it: the neighbour's, or the destination's if the session is relayed.
    pub fn session_peer(&self, session: SessionId) -> Option<PublicKey> {
        let entry = self.sessions.entry(session)?;
        match &entry.securing {
            Some(securing) => securing.peer,
            None => self.links.get(&entry.link?)?.peer,
        }
    }

    /// Waits for the answer to its handshake.
    pub(super) fn is_securing(&self, session: SessionId) -> bool {
        let securing = self.sessions.entry(session).and_then(|e| e.securing.as_ref());
        securing.is_some_and(|s| matches!(s.stage, Stage::Opening { .. }))
    }

    /// A packet of the handshake came on the far end's control flow.
    pub(super) fn on_session_lead(&mut self, now: Time, flow: FlowId, id: SessionId, packet: &Bytes) {
        let Some(f) = self.shared.flows.incoming(flow) else { return };
        // While no link carries it, its hop is not known.
        let (from, open) = (f.on.and_then(|on| self.links.get(&on)).map_or(Neighbour::Several, |l| l.neighbour()), f.open.clone());
        let fits = open.relayed.map_or(open.symbol, |r| r.fits.min(open.symbol));
        let mut rng = self.shared.fork_rng();
        let Some(entry) = self.sessions.entry(id) else { return };
        let Some(securing) = &entry.securing else { return };
        let (key, ends, role) = (entry.session.key(), securing.ends, entry.session.role());
        if matches!(securing.stage, Stage::Waiting(_)) && self.passes_over(now, flow, id) {
            return;
        }
        let Some(securing) = self.sessions.entry(id).and_then(|e| e.securing.as_ref()) else { return };
        let costs = match securing.stage {
            Stage::Answering => true,
            // The first one was paid for with the answer.
            Stage::Waiting(_) => securing.forgeries > 0 && !securing.is_begun_again,
            _ => false,
        };
        if costs && !switch::is_off(Mechanism::OpenerTokens) && !self.openers.charge(now, from, Host::from(ends.opener)) {
            return match securing.stage {
                // It comes by another route.
                Stage::Waiting(_) => self.ask_again(flow, id),
                _ => self.refuse_opener(
                    now,
                    id,
                    "more sessions are opened by the same neighbour, or from the same end, than can be looked at",
                ),
            };
        }
        let Some(securing) = self.sessions.entry(id).and_then(|e| e.securing.as_ref()) else { return };
        let result = match &securing.stage {
            Stage::Answering => {
                if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
                    securing.paid_by = Some(from);
                }
                let shared = &self.shared;
                let may_open = |peer| shared.may_open_sessions(peer);
                let answered = handshake::answer(shared.credentials(), key, &ends, packet, fits, may_open, &mut rng);
                return self.on_answer(now, flow, id, answered);
            }
            Stage::Waiting(_) if securing.is_begun_again => return self.pass_over_first(now, flow, id),
            Stage::Opening { .. } | Stage::Waiting(_) => {
                let Some(entry) = self.sessions.entry_mut(id) else { return };
                match entry.securing.as_mut().map(|s| &mut s.stage) {
                    Some(Stage::Opening { opening, .. }) => opening.finish(packet, fits),
                    Some(Stage::Waiting(waiting)) => waiting.complete(packet),
                    _ => return,
                }
            }
            Stage::Answered | Stage::Unconfirmed | Stage::Secured => return,
        };
        match result {
            Ok(secured) if self.is_question(id) => self.on_question_answered(now, id, secured.peer, secured.restart_epoch),
            Ok(secured) => {
                self.decide_contest(now, flow, id);
                if let Err(reason) = self.install(now, id, secured, fits, Stage::Secured) {
                    self.fail_session(now, id, reason);
                }
            }
            // Another key than the destination's: the node that answered is not the destination, and may be any relay on the route.
            Err(Failure::Fatal(reason)) if role == SessionRole::Opener && reason.code == Code::WrongKey => self.put_off(now, id, &reason),
            Err(Failure::Fatal(reason)) => {
                // A question is answered by a refusal as well.
                let refused_by = match self.sessions.entry(id).and_then(|e| e.securing.as_ref()).map(|s| &s.stage) {
                    Some(Stage::Opening { opening, .. }) => opening.refused_by(),
                    _ => None,
                };
                match refused_by.filter(|_| self.is_question(id)) {
                    Some((peer, epoch)) => self.on_question_answered(now, id, peer, epoch),
                    None => self.fail_session(now, id, reason),
                }
            }
            // A relay that changed it cannot be told from the far end, and the flow brings each packet once: nothing but another attempt helps.
            Err(Failure::Forged) if role == SessionRole::Acceptor => self.ask_again(flow, id),
            Err(Failure::Forged) => {
                let reason = CloseReason::local(Code::Handshake, Layer::Session, "the answer was not made by the destination");
                self.put_off(now, id, &reason);
            }
        }
    }

    /// Packet 1 of the opener, which has its keys by now, was altered on the route: its control flow has to come by another route, from the beginning.
    fn ask_again(&mut self, flow: FlowId, id: SessionId) {
        let hop = self.shared.flows.incoming(flow).and_then(|f| Some((f.on?, f.open.label)));
        let is_contender = self.forget_contender(flow, None);
        if !is_contender {
            self.forget_control_in(id);
        }
        if let Some((link, label)) = hop
            && let Some(l) = self.links.get_mut(&link)
        {
            l.refuse_flow(label, Code::Handshake);
            l.count_lie();
        }
        self.shared.counters.polluted += 1;
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            securing.is_begun_again |= !is_contender && matches!(securing.stage, Stage::Waiting(_));
            securing.forgeries += 1;
        }
        if let Some((link, _)) = hop {
            self.events.push_back(Event::Polluted { session: id, link });
            self.mark_ready(link);
            self.rearm(link);
        }
        self.arm_session(id);
    }

    /// The far end's control flow begins anew when it comes again.
    pub(super) fn forget_control_in(&mut self, id: SessionId) {
        let Some(control) = self.sessions.control_in(id) else { return };
        self.sessions.set_control_in(id, None);
        self.abandon_in(control);
    }

    /// The hop by which a flow comes hears that it is not taken.
    fn refuse_in(&mut self, flow: FlowId, code: Code) {
        let hop = self.shared.flows.incoming(flow).and_then(|f| Some((f.on?, f.open.label)));
        if let Some((on, label)) = hop
            && let Some(link) = self.links.get_mut(&on)
        {
            link.refuse_flow(label, code);
            self.mark_ready(on);
        }
    }

    /// Packet 0 came once more: what counts is the packet behind it.
    fn pass_over_first(&mut self, now: Time, flow: FlowId, id: SessionId) {
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            securing.is_begun_again = false;
        }
        self.await_lead(now, flow);
    }

    /// A control flow begins with as many packets of the handshake as there may be.
    fn await_lead(&mut self, now: Time, flow: FlowId) {
        if let Some(f) = self.shared.flows.incoming_mut(flow) {
            f.sink.set_lead(handshake::MAX_LEAD);
        }
        self.touch_in(now, flow);
        self.mark_ready_at(self.in_on(flow));
    }

    fn on_answer(&mut self, now: Time, flow: FlowId, id: SessionId, answered: Result<handshake::Answer, Failure>) {
        let answer = match answered {
            Ok(answer) => answer,
            Err(failure) => {
                let reason = match failure {
                    Failure::Fatal(reason) => reason,
                    Failure::Forged => CloseReason::local(Code::Handshake, Layer::Session, ""),
                };
                let hop = self.shared.flows.incoming(flow).and_then(|f| Some((f.on?, f.open.label)));
                if let Some((on, label)) = hop
                    && let Some(link) = self.links.get_mut(&on)
                {
                    link.send_control(Control::FlowRefused { flow: label, base: 0, reason: reason.code as u64 });
                }
                self.fail_session(now, id, reason);
                return;
            }
        };
        if let Some(f) = self.shared.flows.incoming_mut(flow) {
            f.sink.set_lead(answer.lead);
        }
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        if let Some(securing) = &mut entry.securing {
            securing.lead.push(answer.packet);
            securing.lead_in = answer.lead;
        }
        // Opens our control flow, which begins with the answer.
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            securing.stage = Stage::Answered;
        }
        self.sessions.note_untold(id);
        self.pump_session(now, id);
        self.send_leads(now, id);
        let result = match answer.step {
            AnswerStep::Waiting(waiting) => {
                if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
                    securing.stage = Stage::Waiting(waiting);
                }
                Ok(())
            }
            AnswerStep::Secured(secured) => self.install(now, id, *secured, 0, Stage::Unconfirmed),
            AnswerStep::Refused(reason, secured) => self.install(now, id, *secured, 0, Stage::Unconfirmed).and(Err(reason)),
        };
        if let Err(reason) = result {
            self.fail_session(now, id, reason);
        }
    }
}

fn gone() -> CloseReason {
    CloseReason::local(Code::Internal, Layer::Session, "the session is gone")
}
