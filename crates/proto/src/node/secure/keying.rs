//! The keys of a relayed session stand: each flow gets its own, what waited goes, and the owner hears of the session (P19, P20).

use super::{Stage, gone};
use crate::admission::Host;
use crate::crypto::{CryptoError, SESSION_OVERHEAD};
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::ids::SessionId;
use crate::node::Node;
use crate::node::commands::NO_LINK;
use crate::session::handshake::Secured;
use crate::session::{CONTROL_INDEX, MIN_SYMBOL, SessionRole};
use crate::units::Time;

impl Node {
    /// Hands packets of the handshake to our control flow.
    pub(super) fn send_leads(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let (link, Some(control)) = (entry.link, entry.control()) else { return };
        let Some(securing) = &mut entry.securing else { return };
        if let Some(flow) = self.shared.flows.out_mut(control) {
            securing.lead.drain(..).for_each(|packet| flow.source.push_lead(packet));
            self.touch_out(now, control);
            self.mark_ready_at(link);
            self.rearm_at(link);
        }
    }

    /// Keys stand: every flow of the session gets its own, and what waited goes.
    pub(super) fn install(&mut self, now: Time, id: SessionId, secured: Secured, fits: u16, stage: Stage) -> Result<(), CloseReason> {
        let entry = self.sessions.entry_mut(id).ok_or_else(gone)?;
        let (role, peer) = (entry.session.role(), secured.peer);
        let securing = entry.securing.as_mut().ok_or_else(gone)?;
        securing.peer = Some(peer);
        securing.restart_epoch = secured.restart_epoch;
        let mut keys = secured.keys;
        keys.renewal.begin(now, self.shared.config.rekey_after, self.shared.config.rekey_packets);
        securing.keys = Some(keys);
        securing.symbol = secured.symbol;
        securing.lead.extend(secured.third);
        let is_confirmed = matches!(stage, Stage::Secured);
        securing.stage = stage;
        securing.monitor.on_keys(now);
        if is_confirmed {
            securing.deadline = None;
        }
        self.send_leads(now, id);
        self.key_flows(now, id, role)?;
        if role == SessionRole::Opener {
            // The acceptor has no other way to know: IK's only message of ours left before its answer came.
            if let Some(entry) = self.sessions.entry_mut(id) {
                entry.session.tell_fits(fits);
            }
            self.events.push_back(Event::SessionOpened { session: id });
            self.end_sessions_of_earlier_process(now, id);
        } else if is_confirmed {
            if !self.shared.may_open_sessions(peer) {
                return Err(CloseReason::local(Code::NotAuthorised, Layer::Session, "this key may not open sessions here"));
            }
            self.announce(now, id);
            self.end_sessions_of_earlier_process(now, id);
        }
        self.pump_session(now, id);
        self.feed_session(now, id);
        Ok(())
    }

    /// Each flow of the session has a key of its own.
    fn key_flows(&mut self, now: Time, id: SessionId, role: SessionRole) -> Result<(), CloseReason> {
        let defect = |e: CryptoError| CloseReason::local(e.code(), Layer::Session, e.to_string());
        let (out, incoming) = (self.shared.flows.out_of(id), self.shared.flows.in_of(id));
        let mut unsound = None;
        for flow in out {
            let securing = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()).ok_or_else(gone)?;
            if let Some(f) = self.shared.flows.out_mut(flow).filter(|f| !f.source.is_in_parts()) {
                securing.key_out(&mut f.open, &mut f.source).map_err(defect)?;
                f.sender.set_symbol(f.open.symbol);
            }
            self.touch_out(now, flow);
            self.mark_ready_at(self.out_on(flow));
        }
        for flow in incoming {
            let securing = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()).ok_or_else(gone)?;
            let Some(keys) = &mut securing.keys else { break };
            if let Some(f) = self.shared.flows.incoming_mut(flow) {
                let key = keys.receive.flow(&f.open).map_err(defect)?;
                let result = f.sink.set_key(key);
                // What a relay put behind the handshake before it could be checked is none of the opener's: the flow begins again.
                if result.is_err() && f.open.index == CONTROL_INDEX && role == SessionRole::Acceptor {
                    unsound = Some(flow);
                    continue;
                }
                result?;
            }
            self.touch_in(now, flow);
            self.mark_ready_at(self.in_on(flow));
        }
        if let Some(flow) = unsound {
            self.ask_again(flow, id);
        }
        Ok(())
    }

    /// A sealed packet opened: the opener has the keys.
    pub(in crate::node) fn confirm(&mut self, now: Time, id: SessionId) {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return };
        if matches!(securing.stage, Stage::Unconfirmed) {
            securing.stage = Stage::Secured;
            securing.deadline = None;
            let early = core::mem::take(&mut securing.early);
            self.announce(now, id);
            self.end_sessions_of_earlier_process(now, id);
            early.into_iter().for_each(|flow| self.on_flow_opened(now, flow));
        }
    }

    /// Tells the owner of a session that the far end opened, once.
    fn announce(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(peer) = entry.securing.as_ref().and_then(|s| s.peer) else { return };
        if !core::mem::replace(&mut entry.is_announced, true) {
            let (link, far) = (entry.link.unwrap_or(NO_LINK), entry.far.address());
            let payer = entry.securing.as_mut().and_then(|s| s.paid_by.take()).zip(far);
            if let Some((payer, far)) = payer {
                self.openers.refund(now, payer, Host::from(far));
            }
            self.sessions.prove(id);
            self.events.push_back(Event::SessionIncoming { session: id, link, peer, far });
        }
    }

    /// What reaches the far end uncut, says the far end: for flows opened from now on.
    pub(in crate::node) fn on_fits(&mut self, id: SessionId, symbol: u16) {
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut())
            && usize::from(symbol) >= MIN_SYMBOL + SESSION_OVERHEAD
        {
            securing.symbol = Some(symbol);
        }
    }
}
