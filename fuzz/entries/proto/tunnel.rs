//! Any IP packet out of a tunnel: it is read or refused, and what is changed in it leaves it readable, as long as it was, with the same ends.

#[allow(dead_code, clippy::duplicate_mod, reason = "the tunnel's own file, of which a target uses a part")]
#[path = "../../../crates/node/src/daemon/tunnel/packet.rs"]
mod packet;

use super::Input;
use bytes::Bytes;
use packet::{Header, clamp_segment_size, clamped, mark_congestion};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (mtu, content) = (input.u16(), input.rest());
    let Some(header) = Header::parse(content) else { return };
    let ends = |packet: &[u8]| Header::parse(packet).map(|h| (h.source, h.destination, h.protocol, h.dscp, h.ports));
    let mut marked = content.to_vec();
    if mark_congestion(&mut marked) {
        assert_eq!(ends(&marked), ends(content));
        assert!(mark_congestion(&mut marked.clone()), "a mark stays");
    } else {
        assert_eq!(marked, content);
    }
    let mut small = content.to_vec();
    let is_changed = clamp_segment_size(&mut small, &header, mtu);
    assert_eq!((is_changed, ends(&small)), (small != content, ends(content)));
    assert_eq!(clamped(Bytes::copy_from_slice(content), &header, mtu), small);
    assert!(!clamp_segment_size(&mut small, &header, mtu), "once is enough");
}
