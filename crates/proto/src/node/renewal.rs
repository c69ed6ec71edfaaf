//! Fresh keys of relayed sessions (P3, P20): when they are due, and how the flows of a session pass from one generation to the next. The exchange itself is in
//! `crypto/session_renewal.rs`, what a single flow does in `crypto/flow_key.rs`; `docs/spec/session.md` 8.6.

use super::Node;
use crate::crypto::{CryptoError, FlowKey, Fresh};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{FlowId, SessionId};
use crate::session::{Accepted, CONTROL_INDEX, FIRSTS_AT_ONCE};
use crate::units::{Duration, Time};
use crate::wire::frame::FlowOpen;
use std::collections::BTreeMap;

/// How often it is looked whether packets of the generation before are missing, before the next one is agreed.
const LOOK: Duration = Duration::from_millis(100);
/// A flow that was named with packets of the generation before and of which nothing was heard for so long does not come any more.
const LOST: Duration = Duration::from_secs(30);
/// Flows that may be named before they are known, for each that may be open: parts included.
const MOST_AWAITED: usize = 16;

/// What is left to do of the last renewal, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Flows of the far end that are not known yet and have packets of the generation before: index and part, and the first packet of the new one.
    awaited: BTreeMap<(u64, u64), u64>,
    /// Flows that the far end has named so far, whether they are known or not.
    named: usize,
    /// The far end has named all flows that have such packets; until then any may.
    is_told: bool,
    /// When it began.
    since: Option<Time>,
    look_at: Option<Time>,
    /// Acceptor: a request for the next generation that came before this one was done with.
    request: Option<(u64, Vec<u8>)>,
}

impl Handover {
    /// When to look again, or if there is nothing to look for, `due`: when the next generation is due.
    pub(super) fn poll_timeout(&self, due: Option<Time>) -> Option<Time> {
        self.look_at.or(due)
    }

    /// A flow of the far end begins here.
    pub(super) fn welcome(&mut self, open: &FlowOpen, key: &mut FlowKey) {
        if let Some(first) = self.awaited.remove(&(open.index, open.part())) {
            key.set_border(first);
        } else if self.is_told {
            key.set_border(0);
            let _ = key.settle(0);
        }
    }
}

impl Node {
    /// The generation of a relayed session's keys, 0 being that of its handshake; none between neighbours.
    pub fn session_generation(&self, session: SessionId) -> Option<u64> {
        Some(self.sessions.entry(session)?.securing.as_ref()?.generation())
    }

    /// Looks whether the last renewal is done with, and begins the next one if it is due.
    pub(super) fn drive_renewal(&mut self, now: Time, id: SessionId) {
        let Some(securing) = self.sessions.entry(id).and_then(|e| e.securing.as_ref()) else { return };
        let is_due = securing.renewal_due().is_some_and(|at| at <= now);
        let looks = securing.handover.look_at.is_some_and(|at| at <= now);
        if !(looks || (is_due && securing.handover.look_at.is_none())) {
            return;
        }
        let is_settled = self.settle_keys(now, id);
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(securing) = &mut entry.securing else { return };
        securing.handover.look_at = (!is_settled).then_some(now + LOOK);
        if !is_settled {
            return;
        }
        if let Some((generation, message)) = securing.handover.request.take() {
            return self.on_session_rekey(now, id, generation, 0, message);
        }
        if is_due && let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            let generation = securing.generation() + 1;
            let mut rng = self.shared.fork_rng();
            let Some(entry) = self.sessions.entry_mut(id) else { return };
            let Some(keys) = entry.securing.as_mut().and_then(|s| s.keys()) else { return };
            match keys.renewal.ask(&mut rng) {
                Ok(message) => entry.session.tell_rekey(generation, 0, message),
                Err(e) => self.fail_renewal(now, id, &e),
            }
        }
    }

    /// A message of the exchange came.
    pub(super) fn on_session_rekey(&mut self, now: Time, id: SessionId, generation: u64, step: u8, message: Vec<u8>) {
        let is_settled = step != 0 || self.settle_keys(now, id);
        let mut rng = self.shared.fork_rng();
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(securing) = &mut entry.securing else { return self.fail_renewal(now, id, &CryptoError::Malformed) };
        if !is_settled {
            // One at a time: packets of two generations can be told apart, those of three cannot.
            if securing.handover.request.replace((generation, message)).is_some() {
                return self.fail_renewal(now, id, &CryptoError::Malformed);
            }
            securing.handover.look_at = Some(now + LOOK);
            return self.arm_session(id);
        }
        let Some(keys) = securing.keys() else { return self.fail_renewal(now, id, &CryptoError::Malformed) };
        let result =
            keys.renewal.on_message(now, generation, step, &message, &mut rng).and_then(|fresh| self.take_up(now, id, generation, fresh));
        if let Err(e) = result {
            self.fail_renewal(now, id, &e);
        }
    }

    /// Secrets of a new generation: what comes may be sealed with it from now on, what leaves is.
    fn take_up(&mut self, now: Time, id: SessionId, generation: u64, fresh: Fresh) -> Result<(), CryptoError> {
        if let Some(secret) = fresh.receive {
            let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return Ok(()) };
            securing.handover = Handover { since: Some(now), ..Handover::default() };
            let Some(keys) = securing.keys() else { return Err(CryptoError::Malformed) };
            keys.receive.renew(secret, true);
            for flow in self.shared.flows.in_of(id) {
                if let Some(flow) = self.shared.flows.incoming_mut(flow).filter(|f| f.sink.is_keyed()) {
                    flow.sink.expect_key(keys.receive.next_generation(&flow.open)?);
                }
            }
        }
        if let Some(message) = fresh.message
            && let Some(entry) = self.sessions.entry_mut(id)
        {
            entry.session.tell_rekey(generation, 1, message);
        }
        if let Some(secret) = fresh.send {
            let Some(keys) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()).and_then(|s| s.keys()) else {
                return Err(CryptoError::Malformed);
            };
            keys.send.renew(secret, false);
            let mut firsts = Vec::new();
            for flow in self.shared.flows.out_of(id) {
                if let Some(flow) = self.shared.flows.out_mut(flow).filter(|f| f.source.is_keyed()) {
                    flow.source.renew_key(keys.send.next_generation(&flow.open)?);
                    if flow.source.packets() > 0 {
                        firsts.push((flow.open.index, flow.open.part(), flow.source.packets()));
                    }
                }
            }
            if let Some(entry) = self.sessions.entry_mut(id) {
                entry.session.tell_keys(generation, &firsts);
            }
        }
        self.pump_session(now, id);
        Ok(())
    }

    /// The far end seals with a generation from now on, and says where it began in which flows.
    pub(super) fn on_session_keys(&mut self, now: Time, id: SessionId, generation: u64, is_last: bool, firsts: &[(u64, u64, u64)]) {
        let most = MOST_AWAITED * self.shared.config.max_flows.max(16);
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(securing) = &mut entry.securing else { return self.fail_renewal(now, id, &CryptoError::Malformed) };
        if generation != securing.generation() || securing.handover.is_told || securing.handover.since.is_none() {
            return self.fail_renewal(now, id, &CryptoError::Malformed);
        }
        // All flows of the session are looked at for each frame: a list that is cut into many costs its square.
        securing.handover.named += firsts.len();
        if (!is_last && firsts.len() < FIRSTS_AT_ONCE) || securing.handover.named > most {
            return self.fail_renewal(now, id, &CryptoError::Malformed);
        }
        let keyed = self.keyed_in(id);
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(securing) = &mut entry.securing else { return };
        for &(index, part, first) in firsts {
            if let Some(flow) = keyed.get(&(index, part)) {
                let flow = self.shared.flows.incoming_mut(*flow);
                if let Some(key) = flow.and_then(|f| f.sink.key_mut()) {
                    key.set_border(first);
                }
                continue;
            }
            let is_over = index == CONTROL_INDEX || matches!(entry.session.inspect_flow(index), Ok(Accepted::Over) | Err(_));
            if !is_over {
                securing.handover.awaited.insert((index, part), first);
            }
        }
        if !is_last {
            return;
        }
        securing.handover.is_told = true;
        securing.handover.look_at = Some(now + LOOK);
        // What it did not name is over there, and here in full, or began after.
        for ((_, part), flow) in &keyed {
            if let Some(flow) = self.shared.flows.incoming_mut(*flow).filter(|_| *part == 0) {
                let done = flow.receiver.done().0;
                if let Some(key) = flow.sink.key_mut() {
                    key.end_older(done);
                }
            }
        }
        let Some(keys) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()).and_then(|s| s.keys()) else { return };
        let result = keys.renewal.on_used(generation).and_then(|send| match send {
            Some(secret) => self.take_up(now, id, generation, Fresh { send: Some(secret), receive: None, message: None }),
            None => Ok(()),
        });
        match result {
            Ok(()) => drop(self.settle_keys(now, id)),
            Err(e) => self.fail_renewal(now, id, &e),
        }
        self.arm_session(id);
    }

    /// Incoming flows of a session that have keys, by index and part.
    fn keyed_in(&self, id: SessionId) -> BTreeMap<(u64, u64), FlowId> {
        let flows = self.shared.flows.in_of(id).into_iter().filter_map(|flow| self.shared.flows.incoming(flow));
        flows.filter(|f| f.sink.is_keyed()).map(|f| ((f.open.index, f.open.part()), f.id)).collect()
    }

    /// Forgets keys of the generation before where nothing that they sealed is missing. True if that is so in all flows of the session: then their secret is gone.
    fn settle_keys(&mut self, now: Time, id: SessionId) -> bool {
        let mut is_settled = true;
        for flow in self.keyed_in(id).into_values() {
            let Some(flow) = self.shared.flows.incoming_mut(flow) else { continue };
            let done = flow.receiver.done().0;
            flow.sink.settle_key(done);
            // A part that the far end did not name is over there: its route ends it here, too.
            let counts = flow.open.part() == 0 || flow.sink.has_older_key_with_border();
            is_settled &= !(counts && flow.sink.has_older_key());
        }
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return false };
        let is_late = securing.handover.since.is_some_and(|since| now.since(since) >= LOST);
        let is_begun = securing.handover.since.is_some();
        is_settled &= !is_begun || (securing.handover.is_told && (securing.handover.awaited.is_empty() || is_late));
        if is_settled {
            securing.handover.awaited.clear();
            if let Some(keys) = securing.keys() {
                keys.receive.forget_older();
            }
        }
        is_settled
    }

    /// Nobody but the far end can have sealed what makes no sense.
    fn fail_renewal(&mut self, now: Time, id: SessionId, e: &CryptoError) {
        let code = if matches!(e, CryptoError::Malformed) { Code::SessionProtocol } else { e.code() };
        self.fail_session(now, id, CloseReason::local(code, Layer::Session, format!("renewal of the session's keys: {e}")));
    }
}
