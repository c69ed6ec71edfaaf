//! Link (in work).
