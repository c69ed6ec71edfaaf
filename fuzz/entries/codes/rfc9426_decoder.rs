//! Any octets as coded packets of RFC 9426, q = 2 and q = 256.

use super::Input;
use noctule_codes::rfc9426::{CodingHeader, Decoder, DegreeDistribution, FieldSize, Parameters};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (q2, k) = (input.u8().is_multiple_of(2), input.u8());
    let weights: Vec<u32> = input.bytes().iter().map(|b| u32::from(*b) * 257).collect();
    let Ok(degrees) = DegreeDistribution::new(&weights) else { return };
    let parameters = if q2 { Parameters::new(16, FieldSize::Q2, 10) } else { Parameters::new(8, FieldSize::Q256, 16) };
    let Ok(parameters) = parameters else { return };
    let Ok(mut decoder) = Decoder::new(parameters, degrees, usize::from(k)) else { return };
    while !input.is_empty() {
        let header = CodingHeader::parse(input.u32().to_be_bytes());
        let mut packet = input.bytes().to_vec();
        if header.source_packets.is_multiple_of(2) {
            packet.resize(parameters.payload_len(), 0);
        }
        decoder.receive(header.batch_id, &packet);
        decoder.receive(header.batch_id % 16, &packet);
        assert!(decoder.rank() <= 16 * 8192);
    }
    let _ = decoder.into_data();
}
