//! Fresh keys in mid-life (P3): when the exchange begins and how its frames travel. The exchange itself is in `crypto`.

use super::Link;
use crate::error::{CloseReason, Layer};
use crate::shared::Shared;
use crate::units::Time;

impl Link {
    /// Begins, repeats or ends what is due.
    pub(super) fn drive_rekey(&mut self, now: Time, shared: &mut Shared) {
        let Some(keys) = &mut self.keys else { return };
        if keys.poll_timeout().is_some_and(|due| due <= now)
            && let Err(e) = keys.handle_timeout(now, &mut shared.fork_rng())
        {
            self.close(now, CloseReason::local(e.code(), Layer::Crypto, e.to_string()));
        }
    }

    /// A REKEY frame arrived.
    pub(super) fn on_rekey(
        &mut self,
        now: Time,
        generation: u64,
        step: u8,
        message: &[u8],
        shared: &mut Shared,
    ) -> Result<(), CloseReason> {
        let Some(keys) = &mut self.keys else { return Ok(()) };
        keys.on_frame(now, generation, step, message, &mut shared.fork_rng())
            .map_err(|e| CloseReason::local(e.code(), Layer::Crypto, e.to_string()))
    }
}
