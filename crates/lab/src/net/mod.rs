//! The laboratory on real kernels: hosts in network namespaces joined by emulated links, with real processes and real
//! TCP. Linux only.
//!
//! A [`chain::Chain`] is hosts in a row; links are described by the same [`crate::link::LinkSpec`] as in the simulator
//! and run by netem where the kernel has it ([`netem`]) or by our own emulator over TUN devices ([`emulator`]).

pub mod between;
mod capture;
pub mod chain;
pub mod command;
mod contender_path;
pub mod contest;
pub mod counters;
mod curl;
mod descriptor;
pub mod emulator;
mod end;
pub(crate) mod ends;
pub mod fidelity;
mod ip;
mod iperf3;
pub(crate) mod kcptun;
pub mod namespace;
pub mod netem;
pub mod noctule;
pub mod pattern;
mod perf;
mod ping;
pub mod privilege;
pub mod process;
pub(crate) mod program;
mod quic;
pub mod realtime;
pub(crate) mod relays;
pub mod rtnetlink;
pub mod run;
pub mod scratch;
mod signals;
mod srt;
pub mod tcp;
pub mod tcp_proxy;
pub mod timeline;
mod timestamp;
pub mod tun;
mod uftp;
mod watch;
