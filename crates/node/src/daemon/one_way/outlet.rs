//! Sends a stream to another node: packets of the tunnel in, datagrams out. It has a thread of its own, because each datagram has its time.

use super::stamps::{Stamps, Whose};
use super::{Clock, random, socket_for};
use crate::daemon::config::OneWayTo;
use crate::failure::Failure;
use bytes::BytesMut;
use noctule::SecretKey;
use noctule_proto::blind::{Sender, SenderConfig, SenderStats};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Packets between the tunnel and the thread; the stream has a queue of its own.
const QUEUE: usize = 64;
/// Stamps, in microseconds, that are stored as used in advance. After a restart the sender begins behind them, so that no stamp is used twice.
const AHEAD: u64 = 10_000_000;

/// See the file's heading.
#[derive(Debug)]
pub struct Outlet {
    config: OneWayTo,
    /// `None` when the stream is over.
    queue: Mutex<Option<SyncSender<Vec<u8>>>>,
    counts: Mutex<SenderStats>,
    dropped: AtomicU64,
    errors: AtomicU64,
}

/// What `noctule status` shows of it.
#[derive(Clone, Copy, Debug)]
pub struct OutletView {
    /// What the stream did.
    pub sender: SenderStats,
    /// Packets for which there was no room: more came than the rate carries.
    pub dropped: u64,
    /// Datagrams that the system did not take.
    pub errors: u64,
}

impl Outlet {
    /// Begins a stream.
    ///
    /// # Errors
    /// No socket, no thread.
    pub fn start(config: OneWayTo, secret: SecretKey, stamps: Arc<Stamps>) -> Result<Arc<Self>, Failure> {
        let socket = socket_for(config.endpoint)?;
        let clock = Clock::new();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let stamp = first_stamp(since_epoch, stamps.get(Whose::To(config.key.0)));
        let of = SenderConfig {
            secret,
            receiver: config.key,
            psk: config.psk.clone(),
            shape: config.shape,
            plan: config.plan,
            rate: config.rate,
            patience: config.delay,
            renew_after: SenderConfig::RENEW_AFTER,
        };
        let sender = Sender::new(of, clock.now(), stamp, random()?).map_err(|e| Failure::system("a stream in one direction", e))?;
        stamps.raise(Whose::To(config.key.0), stamp + AHEAD);
        let (queue, packets) = mpsc::sync_channel(QUEUE);
        let outlet = Arc::new(Self {
            config,
            queue: Mutex::new(Some(queue)),
            counts: Mutex::new(sender.stats()),
            dropped: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        });
        let work = Work { outlet: Arc::clone(&outlet), sender, packets, socket, clock, stamps, kept: stamp + AHEAD };
        std::thread::Builder::new().name("one-way out".into()).spawn(move || work.run()).map_err(|e| Failure::system("a thread", e))?;
        Ok(outlet)
    }

    /// What the file says of it.
    pub fn config(&self) -> &OneWayTo {
        &self.config
    }

    /// Sends a packet; drops it, and says so, if more come than the rate carries.
    pub fn push(&self, packet: BytesMut) -> bool {
        let is_taken = match &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(queue) => !matches!(queue.try_send(packet.into()), Err(TrySendError::Full(_) | TrySendError::Disconnected(_))),
            None => false,
        };
        if !is_taken {
            self.dropped.fetch_add(1, Relaxed);
        }
        is_taken
    }

    /// Ends the stream, with what waits.
    pub fn end(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Counts.
    pub fn view(&self) -> OutletView {
        let sender = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        OutletView { sender, dropped: self.dropped.load(Relaxed), errors: self.errors.load(Relaxed) }
    }
}

/// What the thread has.
struct Work {
    outlet: Arc<Outlet>,
    sender: Sender,
    packets: mpsc::Receiver<Vec<u8>>,
    socket: UdpSocket,
    clock: Clock,
    stamps: Arc<Stamps>,
    kept: u64,
}

impl Work {
    fn run(mut self) {
        let mut datagram = Vec::new();
        loop {
            let now = self.clock.now();
            while self.sender.poll_transmit(now, &mut datagram) {
                if let Err(error) = self.socket.send_to(&datagram, self.outlet.config.endpoint)
                    && self.outlet.errors.fetch_add(1, Relaxed) == 0
                {
                    tracing::warn!(to = %self.outlet.config.name, endpoint = %self.outlet.config.endpoint, %error, "the system does not take datagrams of a stream in one direction");
                }
            }
            *self.outlet.counts.lock().unwrap_or_else(PoisonError::into_inner) = self.sender.stats();
            if self.sender.stamp() + AHEAD / 2 > self.kept {
                self.kept = self.sender.stamp() + AHEAD;
                self.stamps.raise(Whose::To(self.outlet.config.key.0), self.kept);
            }
            let pause = self.sender.poll_timeout().since(self.clock.now());
            if self.sender.room() == 0 {
                // Packets wait in the queue meanwhile; the tunnel drops them when that is full.
                std::thread::sleep(pause.max(Duration::from_micros(1)));
                continue;
            }
            match self.packets.recv_timeout(pause) {
                Ok(packet) => self.take(packet),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while self.sender.room() > 0
                && let Ok(packet) = self.packets.try_recv()
            {
                self.take(packet);
            }
        }
    }

    fn take(&mut self, packet: Vec<u8>) {
        // The tunnel gives no packet that is longer than the stream allows, unless the file has just changed: then it is dropped.
        if self.sender.push(packet).is_err() {
            self.outlet.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// The first stamp: the clock in microseconds, or the one behind `kept`, if the clock went back.
fn first_stamp(clock: u128, kept: u64) -> u64 {
    u64::try_from(clock).unwrap_or(u64::MAX).max(kept.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_went_back_does_not_take_the_stamp_with_it() {
        assert_eq!((first_stamp(1000, 0), first_stamp(1000, 999), first_stamp(1000, 5000)), (1000, 1000, 5001));
    }
}
