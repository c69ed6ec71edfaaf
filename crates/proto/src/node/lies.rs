//! A hook for tests: what a node sends of flows can be changed before it is sealed, as a relay that lies would.

/// What changes frames.
type Tamper = Box<dyn FnMut(&mut [u8])>;

/// The change, if there is one.
#[derive(Default)]
pub(crate) struct Lies(Option<Tamper>);

impl Lies {
    /// From now on every group of frames of one flow goes through `tamper`.
    pub(crate) fn set(&mut self, tamper: impl FnMut(&mut [u8]) + 'static) {
        self.0 = Some(Box::new(tamper));
    }

    pub(crate) fn tell(&mut self, frames: &mut [u8]) {
        if let Some(tamper) = &mut self.0 {
            tamper(frames);
        }
    }
}

impl core::fmt::Debug for Lies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lies(..)")
    }
}
