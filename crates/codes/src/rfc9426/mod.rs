//! The BATS coding scheme of RFC 9426, faithfully: parameters, padding, header, outer code, recoder, decoder.
//!
//! Where the RFC's text contradicts itself or leaves a choice, docs/spec/errata.md says what is done here and why. For transport use
//! [`crate::bats`] is far cheaper; this module is there for interoperation and comparison.
//!
//! ```
//! use noctule_codes::rfc9426::{Decoder, DegreeDistribution, Encoder, FieldSize, Parameters};
//! let parameters = Parameters::new(8, FieldSize::Q256, 40).unwrap();       // M = 8, TO = 40: T = 32
//! let degrees = DegreeDistribution::new(&[0, 1, 3, 3, 3, 2, 2, 2, 4]).unwrap();
//! let data = [7u8; 1000];
//! let encoder = Encoder::new(parameters, degrees.clone(), &data).unwrap();
//! let mut decoder = Decoder::new(parameters, degrees, encoder.source_packets()).unwrap();
//! let mut bid = 0;
//! while !decoder.is_complete() {
//!     for packet in encoder.batch(bid) {
//!         decoder.receive(bid, &packet);
//!     }
//!     bid += 1;
//! }
//! assert_eq!(decoder.into_data().unwrap(), data);
//! ```

mod decoder;
mod degree;
#[cfg(feature = "std")]
mod design;
mod header;
mod outer;
mod padding;
mod recoder;

pub use decoder::{Decoder, Received};
pub use degree::DegreeDistribution;
#[cfg(feature = "std")]
pub use design::Design;
pub use header::CodingHeader;
pub use outer::{Encoder, batch_sampler};
pub use padding::{padding_len, write_padding};
pub use recoder::{recode_random, recode_systematic};

use core::fmt;

/// Field of the inner code's coefficients (RFC 9426 §2.2.1: q).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSize {
    /// q = 2.
    Q2,
    /// q = 256.
    Q256,
}

/// Parameters of a BATS session that encoder, recoders and decoder share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    batch_size: u8,
    field: FieldSize,
    payload_len: usize,
}

/// Why parameters or data are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// The combination of M and q is not in Table 1 of RFC 9426.
    BatchSize(usize),
    /// TO leaves no room for data after the coefficient vector, or T exceeds what the padding can express.
    PayloadLength(usize),
    /// The data need K >= 2^16 source packets, or K is 0.
    SourcePackets(usize),
    /// The degree distribution has no positive entry from degree 1 on, or its sum exceeds 32 bits.
    DegreeDistribution,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchSize(m) => write!(f, "batch size {m} does not go with this field size (RFC 9426 Table 1)"),
            Self::PayloadLength(n) => write!(f, "BATS payload of {n} octets: no room for data, or too long to pad"),
            Self::SourcePackets(k) => write!(f, "{k} source packets: not in 1..65536"),
            Self::DegreeDistribution => write!(f, "degree distribution without positive weight, or with a sum above 2^32 - 1"),
        }
    }
}

impl core::error::Error for ParameterError {}

impl Parameters {
    /// Batch size M, field size q and BATS payload size TO (octets).
    ///
    /// # Errors
    /// If (M, q) is not in Table 1 of RFC 9426 or TO is unusable.
    pub fn new(batch_size: usize, field: FieldSize, payload_len: usize) -> Result<Self, ParameterError> {
        let allowed: [usize; 4] = match field {
            FieldSize::Q2 => [16, 32, 64, 128],
            FieldSize::Q256 => [4, 8, 16, 32],
        };
        if !allowed.contains(&batch_size) {
            return Err(ParameterError::BatchSize(batch_size));
        }
        let parameters = Self { batch_size: batch_size as u8, field, payload_len };
        // Padding octets count 1, 2, 2, 3, 3, 3 …; the 255th run ends after 32640.
        if payload_len <= parameters.coefficient_len() || payload_len - parameters.coefficient_len() > 32_640 {
            return Err(ParameterError::PayloadLength(payload_len));
        }
        Ok(parameters)
    }

    /// M.
    pub fn batch_size(&self) -> usize {
        usize::from(self.batch_size)
    }

    /// q.
    pub fn field(&self) -> FieldSize {
        self.field
    }

    /// TO: octets of a coded packet.
    pub fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// CO = ceil(M · log2 q / 8): octets of the coefficient vector.
    pub fn coefficient_len(&self) -> usize {
        match self.field {
            FieldSize::Q2 => self.batch_size().div_ceil(8),
            FieldSize::Q256 => self.batch_size(),
        }
    }

    /// T = TO - CO: octets of coded data.
    pub fn data_len(&self) -> usize {
        self.payload_len - self.coefficient_len()
    }

    /// K = floor(F / T) + 1 for F octets of data.
    pub fn source_packets(&self, data: usize) -> usize {
        data / self.data_len() + 1
    }

    /// Writes the unit vector of packet `index`: the coefficient header at the source.
    pub(crate) fn write_unit(&self, index: usize, out: &mut [u8]) {
        out.fill(0);
        match self.field {
            FieldSize::Q256 => out[index] = 1,
            // Coefficient i is bit i mod 8 counted from the most significant (docs/spec/errata.md, E7).
            FieldSize::Q2 => out[index / 8] = 0x80 >> (index % 8),
        }
    }

    /// Coefficient `i` of a header, as an element of GF(256).
    pub(crate) fn coefficient(&self, header: &[u8], i: usize) -> u8 {
        match self.field {
            FieldSize::Q256 => header[i],
            FieldSize::Q2 => (header[i / 8] >> (7 - i % 8)) & 1,
        }
    }
}
