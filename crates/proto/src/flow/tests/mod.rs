//! Sender and receiver joined by a scripted virtual link: no packets, no paths, only coded packets, their fates and control frames.

mod ablation;
mod bulk;
mod hostile;
mod latency;
mod lifetime;
mod small_flows;
mod switch_off;
mod window;
mod world;
