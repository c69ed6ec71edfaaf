//! Streams of other nodes: datagrams in, packets for the tunnel out.

use super::stamps::{Stamps, Whose};
use super::{Clock, Listening};
use crate::daemon::config::OneWayFrom;
use crate::failure::Failure;
use bytes::Bytes;
use noctule::{PublicKey, SecretKey};
use noctule_proto::blind::{Receiver, ReceiverStats, SenderView};
use noctule_proto::units::Time;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Packets on their way to the device.
const QUEUE: usize = 256;
/// How often the newest announcements are kept: what a node that is started anew may believe a second time.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// See the file's heading.
#[derive(Debug)]
pub struct Inlet {
    config: OneWayFrom,
    clock: Clock,
    view: Mutex<(ReceiverStats, Vec<SenderView>)>,
}

/// A packet with the key of the node that sent it.
pub type Packet = (PublicKey, Bytes);

impl Inlet {
    /// Begins to receive; packets come out of the channel.
    ///
    /// # Errors
    /// The address is taken, or not of this host.
    pub fn start(
        config: OneWayFrom,
        secret: SecretKey,
        stamps: Arc<Stamps>,
    ) -> Result<(Arc<Self>, Listening, mpsc::Receiver<Packet>), Failure> {
        let known: Vec<_> = config.senders.iter().map(|(_, key)| (*key, stamps.get(Whose::From(key.0)))).collect();
        let mut receiver = Receiver::new(secret, config.psk.as_ref().map(|psk| psk.0), known);
        let inlet = Arc::new(Self { config: config.clone(), clock: Clock::new(), view: Mutex::new((receiver.stats(), Vec::new())) });
        let this = Arc::clone(&inlet);
        let (out, packets) = mpsc::channel(QUEUE);
        let mut keep_at = Time::ZERO;
        let listening = Listening::start(config.listen, "one-way in", move |socket, is_over| {
            let mut buffer = [0; 65_536];
            loop {
                let datagram = socket.receive(&mut buffer, KEEP_EVERY);
                let now = this.clock.now();
                if let Some(length) = datagram {
                    receiver.handle_datagram(now, &buffer[..length]);
                }
                while let Some((sender, packet)) = receiver.poll_message() {
                    // Where the device is slower than the stream, the socket's buffer fills, and the system drops.
                    if out.blocking_send((this.config.senders[sender].1, packet)).is_err() {
                        return;
                    }
                }
                let is_over = is_over();
                if now >= keep_at || is_over {
                    keep_at = now + KEEP_EVERY;
                    for ((_, key), view) in this.config.senders.iter().zip(receiver.senders()) {
                        stamps.raise(Whose::From(key.0), view.stamp);
                    }
                }
                *this.view.lock().unwrap_or_else(PoisonError::into_inner) = (receiver.stats(), receiver.senders().collect());
                if is_over {
                    return;
                }
            }
        })?;
        Ok((inlet, listening, packets))
    }

    /// What the file says of it.
    pub fn config(&self) -> &OneWayFrom {
        &self.config
    }

    /// Counts, and the senders in the order of the file, each with the time since it was heard.
    pub fn view(&self) -> (ReceiverStats, Vec<(SenderView, Option<Duration>)>) {
        let (stats, senders) = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.now();
        (stats, senders.into_iter().map(|s| (s, s.heard_at.map(|at| now.since(at)))).collect())
    }
}
