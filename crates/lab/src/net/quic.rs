//! QUIC as a contender: one stream of quinn from the first host to the last, each end a thread of the laboratory on its host.

use std::future::Future;
use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, VarInt};
use tokio::time::timeout_at;

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::namespace::Namespace;
use super::pattern::Pattern;
use super::realtime::prefer_contender;
use super::run::Arrivals;
use super::timeline::Timeline;
use crate::scenario::Scenario;
use crate::sim::{QUIC_WINDOW, QuicCongestion, quic_pair};

/// The library, by the version that `Cargo.toml` asks for.
pub(super) const LIBRARY: &str = "quinn 0.11";

const PORT: u16 = 4433;
/// Asked of the kernel, which gives what its ceiling allows.
const SOCKET_BUFFER: usize = 8 << 20;
const CHUNK: usize = 128 << 10;

/// A stream for the length of the scenario, every byte compared. Datagrams are as long as the links take, windows never limit.
pub(super) fn run(
    path: &ContenderPath<'_>,
    scenario: &Scenario,
    congestion: QuicCongestion,
    started: &dyn Fn(),
) -> Result<Arrivals, ContestError> {
    let mtu = scenario.least_mtu();
    let datagram = u16::try_from(mtu - scenario.ip.overhead()).unwrap_or(u16::MAX);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&scenario.seed.to_be_bytes());
    let (endpoint, client, server) = quic_pair(congestion, datagram, QUIC_WINDOW, seed).map_err(failed)?;
    let to = SocketAddr::new(path.far, PORT);
    let (near, far) = (path.chain.first(), path.chain.last());
    let (from, at) = (bind(near, SocketAddr::new(path.near, 0))?, bind(far, to)?);
    started();
    let start = Instant::now();
    let (end, seed) = (start + scenario.seconds.0, scenario.seed);
    let receiving = far.spawn_thread("quic-receiver", {
        let (endpoint, server) = ((*endpoint).clone(), (*server).clone());
        move || block_on(receive(endpoint, server, at, seed, start, end))
    })?;
    let endpoint = (*endpoint).clone();
    let sending = near.spawn_thread("quic-sender", move || block_on(send(endpoint, client, from, to, seed, end)))?;
    let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
    let (timeline, wrong) = received?;
    Ok(Arrivals { bytes_wrong: Some(wrong), ..Arrivals::of(timeline) })
}

fn failed(error: impl std::fmt::Display) -> ContestError {
    ContestError::Process(format!("quinn: {error}"))
}

fn bind(host: &Namespace, address: SocketAddr) -> io::Result<UdpSocket> {
    host.enter(|| {
        let socket = UdpSocket::bind(address)?;
        let options = socket2::SockRef::from(&socket);
        options.set_recv_buffer_size(SOCKET_BUFFER)?;
        options.set_send_buffer_size(SOCKET_BUFFER)?;
        Ok(socket)
    })?
}

fn block_on<T>(work: impl Future<Output = Result<T, ContestError>>) -> Result<T, ContestError> {
    prefer_contender();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// What arrives until the end of the time; less than everything is a result.
async fn receive(
    endpoint: EndpointConfig,
    server: ServerConfig,
    socket: UdpSocket,
    seed: u64,
    start: Instant,
    end: Instant,
) -> Result<(Timeline, u64), ContestError> {
    let endpoint = Endpoint::new(endpoint, Some(server), socket, Arc::new(TokioRuntime))?;
    let (mut timeline, mut wrong, mut pattern) = (Timeline::default(), 0, Pattern::new(seed));
    let reading = async {
        let Some(incoming) = endpoint.accept().await else { return Err(failed("the endpoint was closed")) };
        let mut stream = incoming.await.map_err(failed)?.accept_uni().await.map_err(failed)?;
        while let Some(chunk) = stream.read_chunk(CHUNK, true).await.map_err(failed)? {
            timeline.record(start.elapsed(), chunk.bytes.len() as u64);
            wrong += pattern.differing(&chunk.bytes);
        }
        Ok(())
    };
    // The sender may notice first that the time is over, and close.
    match timeout_at(end.into(), reading).await {
        Ok(Err(error)) if Instant::now() < end => return Err(error),
        _ => {}
    }
    endpoint.close(VarInt::from_u32(0), b"");
    Ok((timeline, wrong))
}

async fn send(
    endpoint: EndpointConfig,
    client: ClientConfig,
    socket: UdpSocket,
    to: SocketAddr,
    seed: u64,
    end: Instant,
) -> Result<(), ContestError> {
    let endpoint = Endpoint::new(endpoint, None, socket, Arc::new(TokioRuntime))?;
    let writing = async {
        let connection = endpoint.connect_with(client, to, "localhost").map_err(failed)?.await.map_err(failed)?;
        let mut stream = connection.open_uni().await.map_err(failed)?;
        let (mut pattern, mut chunk) = (Pattern::new(seed), vec![0u8; CHUNK]);
        loop {
            pattern.read_exact(&mut chunk)?;
            stream.write_all(&chunk).await.map_err(failed)?;
        }
    };
    let result: Result<Result<(), ContestError>, _> = timeout_at(end.into(), writing).await;
    match result {
        Ok(Err(error)) if Instant::now() < end => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_reports_tell_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        let (_, after) = lock.split_once("name = \"quinn\"\nversion = \"").unwrap();
        let version = LIBRARY.strip_prefix("quinn ").unwrap();
        assert!(after.starts_with(&format!("{version}.")), "{}", &after[..10]);
    }
}
