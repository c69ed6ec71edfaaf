//! Bytes on the wire: checked views and value types (P1-P6).

pub mod ack;
pub mod frame;
pub mod packet;
