//! Path (in work).
