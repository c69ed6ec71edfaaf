//! A congestion control of one's own: `cargo run -p noctule --example controller`
//!
//! This one keeps a fixed window of 64 datagrams in flight, which is good for nothing but to show what a controller has to answer.

use noctule::congestion::{AckEvent, Controller, ControllerFactory, Coupled, LossEvent, SentEvent};
use noctule::{Bandwidth, CongestionControl, ControlState, Endpoint, EndpointConfig, FlowOptions};
use std::error::Error;
use std::time::Duration;

/// Makes one controller for each path.
#[derive(Debug)]
struct FixedWindows;

impl ControllerFactory for FixedWindows {
    fn name(&self) -> &'static str {
        "fixed-window"
    }
    fn build(&self, datagram: u64, _rtt: Duration, _now: noctule::Time) -> Box<dyn Controller> {
        Box::new(FixedWindow { datagram, lost: 0 })
    }
}

#[derive(Debug)]
struct FixedWindow {
    /// Bytes of UDP payload.
    datagram: u64,
    lost: u64,
}

impl Controller for FixedWindow {
    fn name(&self) -> &'static str {
        FixedWindows.name()
    }
    fn on_sent(&mut self, _: &SentEvent) {}
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, event: &LossEvent) {
        self.lost += event.lost_packets;
    }
    fn on_spurious_loss(&mut self, _: noctule::Time, _: u64) {}
    fn window(&self) -> u64 {
        64 * self.datagram
    }
    fn pacing_rate(&self) -> Option<Bandwidth> {
        None
    }
    fn state(&self) -> ControlState {
        ControlState {
            state: "fixed",
            cwnd: self.window(),
            pacing_rate: Bandwidth::default(),
            capacity: Bandwidth::default(),
            base_loss: 0.0,
        }
    }
    fn couple(&mut self, _: Coupled) {}
    fn on_mtu(&mut self, max_datagram: u64) {
        self.datagram = max_datagram;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    static CONTROL: FixedWindows = FixedWindows;
    let server = Endpoint::bind("127.0.0.1:0".parse()?, EndpointConfig::ephemeral()?)?;
    let address = server.local_addr();
    let serving = tokio::spawn(async move {
        let session = server.accept().await?;
        let mut stream = session.accept_uni().await.ok()?;
        let received = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok()?;
        session.closed().await;
        Some(received)
    });
    let config = EndpointConfig::ephemeral()?.with_congestion(CongestionControl::Custom(&CONTROL));
    let client = Endpoint::client(config)?;
    let session = client.connect(address, None).await?;
    let mut stream = session.open_uni(FlowOptions::default())?;
    stream.write_all(&vec![0; 20 << 20]).await?;
    stream.finish().await?;
    println!("{:?}", session.stats().paths()[0].control);
    session.close(0, "done").await;
    println!("received {:?} bytes", serving.await?);
    client.wait_idle().await;
    Ok(())
}
