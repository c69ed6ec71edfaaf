//! Where a command listens.

use super::heading::PATH;
use crate::address::Listen;
use crate::failure::Failure;
use clap::Args;
use std::net::SocketAddr;

/// Goes into every command that listens.
#[derive(Clone, Debug, Default, Args)]
pub struct ListenArgs {
    /// Where to listen: an address of this host, a port, or both (192.0.2.1:5000, [2001:db8::1]:5000, :5000, 5000) [default: port 4242 of every address].
    #[arg(short = 'B', long, value_name = "ADDR[:PORT]", help_heading = PATH)]
    pub bind: Option<Listen>,
    /// UDP port; where this side listens 0 is any that is free [default: 4242].
    #[arg(short, long, value_name = "PORT", help_heading = PATH)]
    pub port: Option<u16>,
}

impl ListenArgs {
    /// The first of these that this host can.
    pub fn places(&self) -> Result<Vec<SocketAddr>, Failure> {
        self.bind.clone().unwrap_or_default().places(self.port).map_err(Failure::Usage)
    }

    /// Whether the command line says anything about it.
    pub fn is_said(&self) -> bool {
        self.bind.is_some() || self.port.is_some()
    }
}
