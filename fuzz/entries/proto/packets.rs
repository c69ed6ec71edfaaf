//! Any datagram: headers are read or refused, and what was read is written back the same.

use noctule_proto::wire::packet::{HandshakeBody, Packet};

pub fn run(datagram: &[u8]) {
    for cid_len in 4..=8 {
        let Ok(packet) = Packet::parse(datagram, cid_len) else { continue };
        let _ = packet.to_string();
        let mut out = Vec::new();
        match &packet {
            Packet::Protected(header) => {
                header.emit(&mut out);
                assert_eq!(out, datagram[..header.encoded_len()]);
            }
            Packet::Handshake(handshake, len) => {
                let _ = handshake.prologue();
                if handshake.body == HandshakeBody::OtherVersion {
                    continue;
                }
                handshake.emit(&mut out);
                assert_eq!(out.len(), *len);
                assert_eq!(Packet::parse(&out, cid_len), Ok(packet));
            }
        }
    }
}
