//! Receives streams of other nodes: datagrams in, packets for the tunnel out.

use super::stamps::{Stamps, Whose};
use super::{Clock, Listening, is_source, random};
use crate::daemon::config::OneWayFrom;
use crate::failure::Failure;
use bytes::Bytes;
use noctule::{PublicKey, SecretKey};
use noctule_proto::blind::{Receiver, ReceiverStats, SenderView};
use noctule_proto::units::Time;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Packets for the device.
const QUEUE: usize = 256;
/// How often the newest announcements are stored. After a restart a node may accept those of the last interval a second time.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// See the file's heading.
#[derive(Debug)]
pub struct Inlet {
    config: OneWayFrom,
    clock: Clock,
    view: Mutex<InletView>,
}

/// What `noctule status` shows of it.
#[derive(Clone, Debug, Default)]
pub struct InletView {
    /// Counts of the receiver, of rejected datagrams too.
    pub receiver: ReceiverStats,
    /// The senders, in the order of the file.
    pub senders: Vec<SenderView>,
    /// Datagrams from addresses that are none of the file's sources.
    pub strangers: u64,
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
        let mut receiver = Receiver::new(secret, config.psk.clone(), known, random()?);
        let inlet = Arc::new(Self { config: config.clone(), clock: Clock::new(), view: Mutex::default() });
        let this = Arc::clone(&inlet);
        let (out, packets) = mpsc::channel(QUEUE);
        let mut keep_at = Time::ZERO;
        let listening = Listening::start(config.listen, "one-way in", move |socket, is_over| {
            let (mut buffer, mut strangers) = ([0; 65_536], 0);
            loop {
                let datagram = socket.receive(&mut buffer, KEEP_EVERY);
                let now = this.clock.now();
                match datagram {
                    Some((length, from)) if is_source(&this.config.sources, from) => receiver.handle_datagram(now, from, &buffer[..length]),
                    Some(_) => strangers += 1,
                    None => {}
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
                let view = InletView { receiver: receiver.stats(), senders: receiver.senders().collect(), strangers };
                *this.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
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

    /// Counts, and the senders with the time since each was heard.
    pub fn view(&self) -> (InletView, Vec<Option<Duration>>) {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.now();
        let heard = view.senders.iter().map(|s| s.heard_at.map(|at| now.since(at))).collect();
        (view, heard)
    }
}
