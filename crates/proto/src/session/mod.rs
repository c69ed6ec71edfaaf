//! Session (in work).
