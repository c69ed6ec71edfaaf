//! The rate that an application should produce, as a stream of the newest values.

use crate::events::{LinkEvent, LinkEvents};
use futures_core::Stream;
use noctule_proto::ids::SessionId;
use noctule_proto::units::Bandwidth;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Rates that a session's application should produce, for an encoder that fits its bit rate to the path
/// ([`Session::target_rates`](crate::Session::target_rates)). Ends with the session.
///
/// Only the newest rate is kept: a reader that comes late misses what is out of date, and never the present rate.
///
/// **Dropping** it has no effect on the session.
#[derive(Debug)]
pub struct TargetRates {
    events: LinkEvents,
    session: SessionId,
    newest: Option<Bandwidth>,
}

impl TargetRates {
    /// `newest`: the rate at this moment, told first.
    pub(crate) fn new(events: LinkEvents, session: SessionId, newest: Option<Bandwidth>) -> Self {
        Self { events, session, newest }
    }

    /// The next rate, in bytes of the application per second; `None` after the end of the session.
    ///
    /// A control that tells no rate has nothing to say here: `gcc` does. One that replaces it
    /// ([`set_congestion`](crate::Session::set_congestion)) ends nothing, the stream is silent then.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Bandwidth> {
        poll_fn(|cx| self.poll_rate(cx)).await
    }

    /// The form of [`next`](Self::next) for tasks that poll.
    pub fn poll_rate(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bandwidth>> {
        loop {
            match self.events.poll_event(cx) {
                Poll::Ready(Some(LinkEvent::TargetRate(rate))) => self.newest = Some(rate),
                // The last change of the rate may be among them.
                Poll::Ready(Some(LinkEvent::Missed(_))) => self.newest = self.events.shared.lock().target_rate(self.session),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(self.newest.take()),
                Poll::Pending => return self.newest.take().map_or(Poll::Pending, |rate| Poll::Ready(Some(rate))),
            }
        }
    }
}

impl Stream for TargetRates {
    type Item = Bandwidth;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bandwidth>> {
        self.poll_rate(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CongestionControl, Endpoint, EndpointConfig};
    use noctule_proto::crypto::SecretKey;
    use std::time::Duration;

    /// Regression: a change of the rate that other events pushed out was not told before the next change.
    #[tokio::test]
    async fn a_rate_that_was_lost_among_other_events_is_asked_for() {
        let end = |name| {
            let config = EndpointConfig::new(SecretKey::from_bytes([name; 32])).with_congestion(CongestionControl::Gcc);
            Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
        };
        let (client, server) = (end(1), end(2));
        let session = client.connect(server.local_addr(), None).await.unwrap();
        let mut rates = session.target_rates();
        let present = rates.next().await;
        assert!(present.is_some());
        {
            let (mut state, mut woken) = (rates.events.shared.lock(), crate::state::Woken::new());
            let readers = &mut state.sessions.get_mut(&rates.session).unwrap().readers;
            readers.tell(&LinkEvent::TargetRate(Bandwidth::from_bytes_per_sec(1.0)), &mut woken);
            (0..300).for_each(|_| readers.tell(&LinkEvent::Heard, &mut woken));
        }
        let told = tokio::time::timeout(Duration::from_secs(20), rates.next()).await.expect("the present rate is told");
        assert_eq!(told, session.target_rate());
    }
}
