//! One set of verbs for every code: source in, coded packet out; packet in, source packet out. The transport, the simulator and the benchmarks
//! take any code by name.
//!
//! A block of K source packets becomes an unbounded (or, for Reed-Solomon and RFC 9426, long) sequence of numbered packets, to be sent in order.
//!
//! ```
//! use noctule_codes::codec::{Code, Settings};
//! use noctule_codes::recoding::Probability;
//! let settings = Settings { packets: 40, packet_len: 100, batch_size: 16, loss: Probability::new(0.1), deviation: Probability::new(0.03) };
//! let data = vec![42u8; 4000];
//! for name in ["bats", "rfc9426", "lt", "semi-random-lt"] {
//!     let code = Code::by_name(name).unwrap();
//!     let mut encoder = code.encoder(&settings, &data).unwrap();
//!     let mut decoder = code.decoder(&settings).unwrap();
//!     let mut packet = [0; 100];
//!     for number in (0..).filter(|n| n % 10 != 7) {        // every tenth packet is lost
//!         encoder.packet(number, &mut packet).unwrap();
//!         decoder.receive(number, &packet);
//!         while let Some((j, source)) = decoder.take_recovered() {
//!             assert_eq!(source, &data[j * 100..][..100]);
//!         }
//!         if decoder.is_complete() { break; }
//!     }
//! }
//! ```

mod batched;
mod fountain;
#[cfg(feature = "rs")]
mod reed_solomon;
mod sliding;

use crate::recoding::Probability;
use alloc::boxed::Box;
use core::fmt;

/// What a code needs to know of a block and its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Source packets K of the block.
    pub packets: usize,
    /// Bytes of a packet, the same for all.
    pub packet_len: usize,
    /// Batch size M of the batched codes.
    pub batch_size: usize,
    /// Measured mean loss of the path.
    pub loss: Probability,
    /// Its standard deviation.
    pub deviation: Probability,
}

/// Why a code cannot serve a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// The settings do not suit this code.
    Settings,
    /// The data are not K · `packet_len` bytes.
    DataLength {
        /// Bytes given.
        given: usize,
        /// Bytes wanted.
        wanted: usize,
    },
    /// The code has no packet of this number, or the buffer has another length than `packet_len`.
    NoSuchPacket(u32),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings => f.write_str("the settings do not suit this code"),
            Self::DataLength { given, wanted } => write!(f, "{given} bytes of data for a block of {wanted}"),
            Self::NoSuchPacket(number) => write!(f, "no packet {number}, or a buffer of the wrong length"),
        }
    }
}

impl core::error::Error for CodecError {}

/// Makes the packets of one block. Belongs to one worker at a time; equal inputs give equal packets on any core (P21).
pub trait Encoder: Send {
    /// Writes packet `number` to `out`, which has `packet_len` bytes.
    ///
    /// # Errors
    /// [`CodecError::NoSuchPacket`].
    fn packet(&mut self, number: u32, out: &mut [u8]) -> Result<(), CodecError>;
}

/// Takes packets of one block in any order. Arbitrary input never panics.
pub trait Decoder: Send {
    /// Offers packet `number`; whether it was or may become of use.
    fn receive(&mut self, number: u32, payload: &[u8]) -> bool;
    /// The next source packet that became known, each once, in no particular order.
    fn take_recovered(&mut self) -> Option<(usize, &[u8])>;
    /// Whether all source packets are known.
    fn is_complete(&self) -> bool;
}

/// The codes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// `bats`: the noctule profile, [`crate::bats`].
    Bats,
    /// `rfc9426`: BATS as RFC 9426 writes it, [`crate::rfc9426`], with degrees designed for the loss.
    Rfc9426,
    /// `lt`: robust soliton LT, [`crate::lt::Soliton`].
    Lt,
    /// `semi-random-lt`: Sphinx's code, [`crate::lt::SemiRandom`].
    SemiRandomLt,
    /// `sliding-window`: RLC over the last packets, [`crate::rlc`]; repairs are sent among the source packets, and what falls out of the
    /// window stays lost.
    SlidingWindow,
    /// `reed-solomon`: MDS over GF(2^16) through the `reed-solomon-simd` crate; twice the expected losses of repair packets.
    #[cfg(feature = "rs")]
    ReedSolomon,
}

impl Code {
    /// All codes of this build.
    pub const ALL: &[Code] = &[
        Code::Bats,
        Code::Rfc9426,
        Code::Lt,
        Code::SemiRandomLt,
        Code::SlidingWindow,
        #[cfg(feature = "rs")]
        Code::ReedSolomon,
    ];

    /// The name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Code::Bats => "bats",
            Code::Rfc9426 => "rfc9426",
            Code::Lt => "lt",
            Code::SemiRandomLt => "semi-random-lt",
            Code::SlidingWindow => "sliding-window",
            #[cfg(feature = "rs")]
            Code::ReedSolomon => "reed-solomon",
        }
    }

    /// The code of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// An encoder for `data`.
    ///
    /// # Errors
    /// If the data have the wrong length or the settings do not suit the code.
    pub fn encoder(self, settings: &Settings, data: &[u8]) -> Result<Box<dyn Encoder>, CodecError> {
        let wanted = settings.packets.checked_mul(settings.packet_len).ok_or(CodecError::Settings)?;
        if data.len() != wanted {
            return Err(CodecError::DataLength { given: data.len(), wanted });
        }
        if wanted == 0 {
            return Err(CodecError::Settings);
        }
        match self {
            Code::Bats => batched::bats_encoder(settings, data),
            Code::Rfc9426 => batched::rfc9426_encoder(settings, data),
            Code::Lt | Code::SemiRandomLt => fountain::encoder(self, settings, data),
            Code::SlidingWindow => Ok(sliding::encoder(settings, data)),
            #[cfg(feature = "rs")]
            Code::ReedSolomon => reed_solomon::encoder(settings, data),
        }
    }

    /// A decoder for blocks of these settings.
    ///
    /// # Errors
    /// If the settings do not suit the code.
    pub fn decoder(self, settings: &Settings) -> Result<Box<dyn Decoder>, CodecError> {
        if settings.packets.checked_mul(settings.packet_len).is_none_or(|n| n == 0) {
            return Err(CodecError::Settings);
        }
        match self {
            Code::Bats => batched::bats_decoder(settings),
            Code::Rfc9426 => batched::rfc9426_decoder(settings),
            Code::Lt | Code::SemiRandomLt => fountain::decoder(self, settings),
            Code::SlidingWindow => Ok(sliding::decoder(settings)),
            #[cfg(feature = "rs")]
            Code::ReedSolomon => reed_solomon::decoder(settings),
        }
    }
}
