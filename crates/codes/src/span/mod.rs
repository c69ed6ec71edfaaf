//! Inner code over a span: at most 64 consecutive source packets, repaired by linear combinations over GF(256) (P4).
//!
//! Packets are byte slices of different lengths; the missing tail of a shorter one counts as zeros (P5).
//! A repair packet is `sum of coefficients[j] · packet[j]`; its coefficients follow from a 16-bit seed
//! ([`repair_coefficients`]) or, once a relay has recoded it, travel as a full vector.
//!
//! ```
//! use noctule_codes::span::{Received, SpanBuffer, encode, repair_coefficients};
//!
//! let packets: [&[u8]; 3] = [b"first", b"2nd", b"the third"];
//! let mut coefficients = [0u8; 3];
//! repair_coefficients(0, 3, &mut coefficients);
//! let mut repair = [0u8; 9];
//! encode(&coefficients, &packets, &mut repair);
//!
//! let mut span = SpanBuffer::new(3);
//! span.receive(&[1, 0, 0], packets[0]);
//! span.receive(&[0, 0, 1], packets[2]);
//! assert!(matches!(span.receive(&coefficients, &repair), Received::Innovative { .. }));
//! while let Some((j, data)) = span.take_recovered() {
//!     assert_eq!(&data[..packets[j].len()], packets[j]); // the tail is padding
//! }
//! assert!(span.basis().is_complete());
//! ```

mod basis;
mod buffer;
mod coefficients;

pub use basis::{Basis, Insert, Solved};
pub use buffer::{Received, SpanBuffer};
pub use coefficients::{CAUCHY_SEEDS, encode, recode_coefficients, repair_coefficients};

/// Most source packets that one span covers (P4).
pub const MAX_SPAN: usize = 64;
