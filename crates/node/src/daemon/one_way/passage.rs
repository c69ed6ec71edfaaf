//! Streams of others that pass: recoded without keys for the next link.

use super::{Clock, Listening, is_source, random, socket_for};
use crate::daemon::config::OneWayRelay;
use crate::failure::Failure;
use noctule_proto::blind::{Relay, RelayConfig, RelayStats};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Datagrams that are read before others are sent.
const BURST: usize = 32;
/// Longest wait.
const PAUSE: Duration = Duration::from_millis(100);

/// See the file's heading.
#[derive(Debug)]
pub struct Passage {
    config: OneWayRelay,
    view: Mutex<PassageView>,
}

/// What `noctule status` shows of it.
#[derive(Clone, Debug, Default)]
pub struct PassageView {
    /// What the relay did.
    pub relay: RelayStats,
    /// Batches by rank.
    pub ranks: Vec<u64>,
    /// Queueing delay: how long the queued packets take to leave.
    pub queueing_delay: Duration,
    /// Bytes held.
    pub memory: usize,
    /// Datagrams from addresses that are none of the file's sources.
    pub strangers: u64,
    /// Datagrams and bytes that came.
    pub received: (u64, u64),
    /// And that went on.
    pub sent: (u64, u64),
    /// Datagrams that the system did not take.
    pub errors: u64,
}

impl Passage {
    /// Begins to pass streams on.
    ///
    /// # Errors
    /// The address is taken, or not of this host.
    pub fn start(config: OneWayRelay) -> Result<(Arc<Self>, Listening), Failure> {
        let OneWayRelay { rate, loss, symbol, memory, .. } = config;
        let of = RelayConfig { rate, loss, symbol, memory, destinations: config.destinations.clone() };
        let mut relay = Relay::new(of, random()?);
        let passage = Arc::new(Self { config: config.clone(), view: Mutex::default() });
        let this = Arc::clone(&passage);
        let outbound = socket_for(config.endpoint)?;
        let listening = Listening::start(config.listen, "one-way relay", move |socket, is_over| {
            let (clock, mut buffer, mut datagram, mut view) = (Clock::new(), [0; 65_536], Vec::new(), PassageView::default());
            while !is_over() {
                let wait = relay.poll_timeout().map_or(PAUSE, |at| at.since(clock.now()).min(PAUSE));
                let mut next = socket.receive(&mut buffer, wait);
                for _ in 0..BURST {
                    let Some((length, from)) = next else { break };
                    view.received = (view.received.0 + 1, view.received.1 + length as u64);
                    match is_source(&this.config.sources, from) {
                        true => relay.handle_datagram(clock.now(), from, &buffer[..length]),
                        false => view.strangers += 1,
                    }
                    next = socket.receive(&mut buffer, Duration::ZERO);
                }
                let now = clock.now();
                relay.handle_timeout(now);
                while relay.poll_transmit(now, &mut datagram) {
                    match outbound.send_to(&datagram, this.config.endpoint) {
                        Ok(_) => view.sent = (view.sent.0 + 1, view.sent.1 + datagram.len() as u64),
                        Err(error) => {
                            if view.errors == 0 {
                                tracing::warn!(endpoint = %this.config.endpoint, %error, "the system does not take datagrams of streams that pass");
                            }
                            view.errors += 1;
                        }
                    }
                }
                this.publish(&relay, &mut view);
            }
        })?;
        Ok((passage, listening))
    }

    fn publish(&self, relay: &Relay, view: &mut PassageView) {
        (view.relay, view.queueing_delay, view.memory) = (relay.stats(), relay.queueing_delay(), relay.memory());
        view.ranks.clear();
        view.ranks.extend_from_slice(relay.ranks());
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone_from(view);
    }

    /// What the file says of it.
    pub fn config(&self) -> &OneWayRelay {
        &self.config
    }

    /// Counts.
    pub fn view(&self) -> PassageView {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
