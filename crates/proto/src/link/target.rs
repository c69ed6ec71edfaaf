//! The rate that an application should produce, for controls that tell one (`gcc`): what the link's paths carry of an application's bytes.

use super::{Link, draft};
use crate::event::Event;
use crate::units::Bandwidth;

/// A rate that differs from the one told by less is not told: an encoder need not hear of half a packet.
const NOTEWORTHY: f64 = 0.05;

impl Link {
    /// Bytes of applications per second that full packets of the open paths carry: headers, and what repairs the mean loss, are taken off.
    /// `None`: the control tells no rate, or no path is open.
    pub(crate) fn target_rate(&self) -> Option<Bandwidth> {
        let of_path = |p: &crate::path::Path| {
            let datagram = f64::from(p.datagram_size());
            let payload = (datagram - f64::from(draft::PACKET_OVERHEAD + draft::MIN_CODED_HEADER)) / datagram;
            Some(p.target_rate()?.scaled(payload.max(0.0)).scaled(p.loss_stats().mean.complement().get()))
        };
        let rates = self.paths.values().filter(|p| p.is_open()).filter_map(|p| of_path(p));
        rates.reduce(|a, b| Bandwidth::from_bytes_per_sec(a.bytes_per_sec() + b.bytes_per_sec()))
    }

    /// A rate that the owner has not been told of.
    pub(crate) fn poll_target_rate(&mut self) -> Option<Event> {
        let rate = self.target_rate();
        if let (Some(told), Some(new)) = (self.told_rate, rate)
            && (new.bytes_per_sec() - told.bytes_per_sec()).abs() <= NOTEWORTHY * told.bytes_per_sec()
        {
            return None;
        }
        self.told_rate = rate;
        rate.map(|rate| Event::TargetRate { link: self.id, rate })
    }
}
