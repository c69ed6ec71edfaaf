//! Any octets as coded packets of RFC 9426, q = 2 and q = 256.
#![no_main]

use libfuzzer_sys::fuzz_target;
use noctule_codes::rfc9426::{CodingHeader, Decoder, DegreeDistribution, FieldSize, Parameters};

fuzz_target!(|input: (bool, u8, Vec<u16>, Vec<([u8; 4], Vec<u8>)>)| {
    let (q2, k, weights, packets) = input;
    let weights: Vec<u32> = weights.into_iter().map(u32::from).collect();
    let Ok(degrees) = DegreeDistribution::new(&weights) else { return };
    let parameters = if q2 { Parameters::new(16, FieldSize::Q2, 10) } else { Parameters::new(8, FieldSize::Q256, 16) };
    let Ok(parameters) = parameters else { return };
    let Ok(mut decoder) = Decoder::new(parameters, degrees, usize::from(k)) else { return };
    for (header, mut packet) in packets {
        let header = CodingHeader::parse(header);
        if header.source_packets % 2 == 0 {
            packet.resize(parameters.payload_len(), 0);
        }
        decoder.receive(header.batch_id, &packet);
        decoder.receive(header.batch_id % 16, &packet);
        assert!(decoder.rank() <= 16 * 8192);
    }
    let _ = decoder.into_data();
});
