//! How much redundancy: the policy from statistics to packet counts (DESIGN 3.3).
