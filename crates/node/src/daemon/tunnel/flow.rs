//! One flow of tunnelled packets towards one node: its CoDel queue, and the task that gives its packets to the transport.

use super::classify::Key;
use super::node::TunnelNode;
use super::packet::mark_congestion;
use crate::daemon::config::Treatment;
use bytes::BytesMut;
use noctule::{FlowError, FlowStats, MessageOptions, MessageSender, TrySendError};
use noctule_proto::codel;
use noctule_proto::units::Time;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A flow that gets no session for so long drops its queue.
const SESSION_PATIENCE: Duration = Duration::from_secs(3);

/// See the file's heading.
#[derive(Debug)]
pub struct TunnelFlow {
    /// The key that its packets have in common.
    pub key: Key,
    state: Mutex<FlowState>,
    news: Notify,
    sender: OnceLock<MessageSender>,
}

#[derive(Debug)]
struct FlowState {
    queue: codel::CodelQueue<BytesMut>,
    /// The queue's clock.
    origin: Instant,
    used: Instant,
    /// The task has ended: packets that are put in would not leave.
    is_over: bool,
}

/// What `noctule status` shows of a flow.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// Its key.
    pub key: Key,
    /// What its queue did.
    pub counts: codel::Counts,
    /// Packets and bytes that wait.
    pub waiting: (usize, usize),
    /// Counts of the transport; `None` before there is a session.
    pub transport: Option<FlowStats>,
}

impl FlowState {
    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.saturating_duration_since(self.origin)
    }
}

impl TunnelFlow {
    /// Makes a flow and starts its task.
    pub fn start(node: &Arc<TunnelNode>, key: Key, treatment: Treatment) -> Arc<Self> {
        let now = Instant::now();
        let state = FlowState { queue: codel::CodelQueue::new(mark_congestion), origin: now, used: now, is_over: false };
        let flow = Arc::new(Self { key, state: Mutex::new(state), news: Notify::new(), sender: OnceLock::new() });
        tokio::spawn(carry(Arc::clone(node), Arc::clone(&flow), treatment));
        flow
    }

    fn state(&self) -> std::sync::MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a packet, at once if nothing waits; gives it back if the flow is over.
    pub fn push(&self, now: Instant, packet: BytesMut) -> Result<(), BytesMut> {
        let mut state = self.state();
        if state.is_over {
            return Err(packet);
        }
        state.used = now;
        let at = state.time(now);
        let mut is_gone = false;
        let send = |packet: BytesMut| {
            let Some(sender) = self.sender.get() else { return Err(packet) };
            let data = packet.freeze();
            match sender.try_send(data.clone(), MessageOptions::default()) {
                Ok(_) => Ok(()),
                Err(error) => {
                    is_gone = matches!(error, TrySendError::Failed { error: FlowError::Session(_) | FlowError::Closed(_), .. });
                    drop(error);
                    Err(data.try_into_mut().unwrap_or_else(|data| BytesMut::from(&data[..])))
                }
            }
        };
        if !state.queue.offer(at, packet, send) {
            return Ok(());
        }
        // The session ended while nothing was sent: the packet goes by the flow that comes after this one.
        let rest = if is_gone { state.queue.withdraw() } else { None };
        state.is_over |= is_gone;
        drop(state);
        self.news.notify_one();
        rest.map_or(Ok(()), Err)
    }

    /// Whether the task has ended.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// When a packet last came.
    pub fn last_used(&self) -> Instant {
        self.state().used
    }

    /// Counts and state.
    pub fn view(&self) -> FlowView {
        let (counts, waiting) = {
            let state = self.state();
            (state.queue.counts, (state.queue.len(), state.queue.bytes()))
        };
        FlowView { key: self.key, counts, waiting, transport: self.sender.get().map(MessageSender::stats) }
    }

    /// Asks the task to end as soon as it has sent what waits.
    pub fn retire(&self) {
        self.state().is_over = true;
        self.news.notify_one();
    }
}

/// Empties the queue into the transport until the flow is idle, retired, or its session is over.
async fn carry(node: Arc<TunnelNode>, flow: Arc<TunnelFlow>, treatment: Treatment) {
    let session = tokio::time::timeout(SESSION_PATIENCE, node.session()).await;
    if let Ok((_, Some(round_trip))) = &session {
        flow.state().queue.set_round_trip(*round_trip);
    }
    let result = match session {
        Ok((session, _)) => match session.open_messages(flow.key.options(&treatment)) {
            Ok(sender) => pass(flow.sender.get_or_init(|| sender), &flow, treatment.flow_idle).await,
            Err(error) => {
                tracing::debug!(node = %node.name(), flow = %flow.key, %error, "no flow for these packets");
                node.note_refused_flow();
                Ok(())
            }
        },
        Err(_) => Ok(()),
    };
    if let Err(error) = result {
        tracing::debug!(node = %node.name(), flow = %flow.key, %error, "a flow ended");
    }
    let lost = {
        let mut state = flow.state();
        state.is_over = true;
        state.queue.len()
    };
    node.forget_flow(&flow, lost as u64);
}

async fn pass(sender: &MessageSender, flow: &TunnelFlow, idle: Duration) -> Result<(), FlowError> {
    loop {
        let next = {
            let mut state = flow.state();
            let now = state.time(Instant::now());
            let next = state.queue.pop(now);
            if next.is_none() && (state.is_over || state.used.elapsed() >= idle) {
                state.is_over = true;
                return Ok(());
            }
            next
        };
        match next {
            Some(packet) => {
                sender.send(packet.freeze(), MessageOptions::default()).await?;
            }
            None => {
                let left = idle.saturating_sub(flow.last_used().elapsed()).max(Duration::from_millis(1));
                let _ = tokio::time::timeout(left, flow.news.notified()).await;
            }
        }
    }
}
