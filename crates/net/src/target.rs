//! The rate that an application should produce, as a stream of the newest values.

use crate::events::{LinkEvent, LinkEvents};
use futures_core::Stream;
use noctule_proto::units::Bandwidth;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Rates that a session's application should produce, for an encoder that fits its bit rate to the path
/// ([`Session::target_rates`](crate::Session::target_rates)). Ends with the session.
///
/// Only the newest rate is kept: a reader that comes late misses what is out of date.
///
/// **Dropping** it has no effect on the session.
#[derive(Debug)]
pub struct TargetRates {
    events: LinkEvents,
    newest: Option<Bandwidth>,
}

impl TargetRates {
    /// `newest`: the rate at this moment, told first.
    pub(crate) fn new(events: LinkEvents, newest: Option<Bandwidth>) -> Self {
        Self { events, newest }
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
