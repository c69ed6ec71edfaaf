//! The four octets of coding parameters in a packet (RFC 9426 §2.4.1, figure 4).

use super::FieldSize;

/// K, (M, q) and the batch id, as figure 4 packs them: 16 + 3 + 13 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodingHeader {
    /// Number of source packets K.
    pub source_packets: u16,
    /// Batch size M.
    pub batch_size: u8,
    /// Field size q.
    pub field: FieldSize,
    /// Batch id, below 2^13.
    pub batch_id: u16,
}

/// Table 1: position = value of the Mq field.
const MQ: [(u8, FieldSize); 8] = [
    (16, FieldSize::Q2),
    (4, FieldSize::Q256),
    (32, FieldSize::Q2),
    (8, FieldSize::Q256),
    (64, FieldSize::Q2),
    (16, FieldSize::Q256),
    (128, FieldSize::Q2),
    (32, FieldSize::Q256),
];

impl CodingHeader {
    /// Largest batch id.
    pub const MAX_BATCH_ID: u16 = (1 << 13) - 1;

    /// Reads the header; every value of four octets is a header.
    pub fn parse(octets: [u8; 4]) -> Self {
        let low = u16::from_be_bytes([octets[2], octets[3]]);
        let (batch_size, field) = MQ[usize::from(low >> 13)];
        Self { source_packets: u16::from_be_bytes([octets[0], octets[1]]), batch_size, field, batch_id: low & Self::MAX_BATCH_ID }
    }

    /// Writes the header; `None` if (M, q) is not in Table 1 or the batch id does not fit.
    pub fn emit(&self) -> Option<[u8; 4]> {
        let mq = MQ.iter().position(|entry| *entry == (self.batch_size, self.field))? as u16;
        if self.batch_id > Self::MAX_BATCH_ID {
            return None;
        }
        let [a, b] = self.source_packets.to_be_bytes();
        let [c, d] = (mq << 13 | self.batch_id).to_be_bytes();
        Some([a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_figure_4_is_packed_as_drawn() {
        let header = CodingHeader { source_packets: 0x1234, batch_size: 16, field: FieldSize::Q256, batch_id: 0x0abc };
        assert_eq!(header.emit(), Some([0x12, 0x34, 0b1010_1010, 0xbc]));
        for mq in 0..8u16 {
            let octets = [0, 200, (mq << 5) as u8 | 3, 4];
            assert_eq!(CodingHeader::parse(octets).emit(), Some(octets));
        }
        assert_eq!(CodingHeader { batch_id: 1 << 13, ..header }.emit(), None);
        assert_eq!(CodingHeader { batch_size: 64, ..header }.emit(), None);
    }
}
