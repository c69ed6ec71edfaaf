//! Flow (in work).
