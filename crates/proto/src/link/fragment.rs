//! Cutting one coded packet into two link fragments when a path's MTU fell below it, and putting them together (P5).

use std::collections::BTreeMap;

/// Half-received packets that are remembered.
const PENDING: usize = 32;
/// Longest encoded CODED frame that is put together, bytes.
const MAX_FRAME: usize = 16 * 1024;

/// Both directions of fragmentation on one link.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    next_id: u64,
    halves: BTreeMap<u64, (u8, Vec<u8>)>,
}

impl Fragments {
    /// A number for the next packet that is cut.
    pub(crate) fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// A fragment arrived; returns the whole frame when its other half is there. Old halves are forgotten.
    pub(crate) fn receive(&mut self, id: u64, index: u8, data: &[u8]) -> Option<Vec<u8>> {
        if index > 1 || data.len() > MAX_FRAME {
            return None;
        }
        match self.halves.remove(&id) {
            Some((other, half)) if other != index => {
                let (mut first, second) = if other == 0 { (half, data) } else { (data.to_vec(), half.as_slice()) };
                first.extend_from_slice(second);
                return Some(first);
            }
            Some(same) => {
                self.halves.insert(id, same);
            }
            None => {
                self.halves.insert(id, (index, data.to_vec()));
                if self.halves.len() > PENDING {
                    self.halves.pop_first();
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_halves_in_any_order_make_the_frame_and_memory_stays_bounded() {
        let mut f = Fragments::default();
        assert_eq!(f.receive(1, 1, b"world"), None);
        assert_eq!(f.receive(1, 1, b"world"), None, "a repeated half is not a whole");
        assert_eq!(f.receive(1, 0, b"hello ").as_deref(), Some(&b"hello world"[..]));
        for id in 10..200 {
            assert_eq!(f.receive(id, 0, b"x"), None);
        }
        assert_eq!(f.halves.len(), PENDING);
        assert_eq!(f.receive(10, 1, b"y"), None, "the oldest half was forgotten");
    }
}
