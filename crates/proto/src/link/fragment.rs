//! Cutting one coded packet into two link fragments when a path's MTU fell below it, and putting them together (P5).

use crate::sent::SentItem;
use std::collections::BTreeMap;

/// Half-received packets that are remembered.
const PENDING: usize = 32;
/// Bytes of them together.
const PENDING_BYTES: usize = 64 * 1024;
/// Longest encoded CODED frame that is put together, bytes.
const MAX_FRAME: usize = 16 * 1024;

/// Both directions of fragmentation on one link.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    next_id: u64,
    halves: BTreeMap<u64, (u8, Vec<u8>)>,
    /// Packets that were cut and have no fate yet: what they are, and the half that arrived. Both halves have fates, so that this ends.
    cut: BTreeMap<u64, (SentItem, Option<u8>)>,
}

impl Fragments {
    /// The coded packet `whole` is cut: its number, for the two fragments and their [`SentItem::Half`].
    pub(crate) fn cut(&mut self, whole: SentItem) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.cut.insert(id, (whole, None));
        id
    }

    /// Half `index` arrived; the whole packet if that makes it complete.
    pub(crate) fn on_acked(&mut self, id: u64, index: u8) -> Option<SentItem> {
        let (_, there) = self.cut.get_mut(&id)?;
        match there.replace(index) {
            Some(other) if other != index => self.cut.remove(&id).map(|(whole, _)| whole),
            _ => None,
        }
    }

    /// A half was lost, and the whole with it; told once. Should both turn up after all, the receiver is better off than the sender believes.
    pub(crate) fn on_lost(&mut self, id: u64) -> Option<SentItem> {
        self.cut.remove(&id).map(|(whole, _)| whole)
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
                while self.halves.len() > PENDING || self.halves.values().map(|(_, half)| half.len()).sum::<usize>() > PENDING_BYTES {
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
    fn a_cut_packet_has_one_fate_whatever_becomes_of_its_halves() {
        let mut f = Fragments::default();
        let ids = [(); 4].map(|()| f.cut(SentItem::Ping));
        assert_eq!((f.on_acked(ids[0], 0), f.on_acked(ids[0], 1)), (None, Some(SentItem::Ping)));
        assert_eq!((f.on_acked(ids[1], 0), f.on_lost(ids[1])), (None, Some(SentItem::Ping)), "the half that arrived did not count");
        assert_eq!((f.on_lost(ids[2]), f.on_acked(ids[2], 1)), (Some(SentItem::Ping), None));
        assert_eq!((f.on_lost(ids[3]), f.on_lost(ids[3])), (Some(SentItem::Ping), None));
        assert!(f.cut.is_empty());
    }

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
        for id in 200..300 {
            assert_eq!(f.receive(id, 0, &[7; MAX_FRAME]), None);
        }
        assert_eq!(f.halves.len(), PENDING_BYTES / MAX_FRAME, "long ones are forgotten sooner");
    }
}
