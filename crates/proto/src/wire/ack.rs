//! The ACK frame (P8).

/// Checked view of an ACK frame.
#[derive(Clone, Debug, PartialEq)]
pub struct AckView<'a> {
    bytes: &'a [u8],
}
