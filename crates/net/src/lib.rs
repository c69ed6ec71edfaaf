//! noctule: an open network-coded transport.
