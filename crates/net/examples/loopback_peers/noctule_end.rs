//! Both ends of a noctule stream.

use std::time::{Duration, Instant};

use noctule::{Endpoint, EndpointConfig, FlowOptions, IncomingFlow};

use super::{BLOCK, DATAGRAM};

fn endpoint() -> Result<Endpoint, String> {
    let mut config = EndpointConfig::ephemeral().map_err(|e| e.to_string())?;
    config.node.max_datagram = DATAGRAM;
    Endpoint::bind(([127, 0, 0, 1], 0).into(), config).map_err(|e| e.to_string())
}

pub async fn receive() -> Result<(), String> {
    let server = endpoint()?;
    println!("{}", server.local_addr());
    let session = server.accept().await.ok_or("the endpoint closed")?;
    let IncomingFlow::Stream { mut recv, .. } = session.accept_flow().await.map_err(|e| e.to_string())? else {
        return Err("the sender did not open a stream".to_owned());
    };
    let (mut bytes, mut chunks, mut first) = (0u64, Vec::new(), None);
    loop {
        match recv.read_chunks(&mut chunks, 1 << 20).await.map_err(|e| e.to_string())? {
            0 => break,
            n => bytes += n as u64,
        }
        first.get_or_insert_with(Instant::now);
        chunks.clear();
    }
    println!("{bytes} {}", first.map_or(0.0, |at| at.elapsed().as_secs_f64()));
    session.closed().await;
    Ok(())
}

pub async fn send(to: &str, seconds: f64, is_chunked: bool) -> Result<(), String> {
    let client = endpoint()?;
    let session = client.connect(to.parse().map_err(|e| format!("{to}: {e}"))?, None).await.map_err(|e| e.to_string())?;
    let mut stream = session.open_uni(FlowOptions::default()).map_err(|e| e.to_string())?;
    let (block, end) = (noctule::Bytes::from(vec![0x5a; BLOCK]), Instant::now() + Duration::from_secs_f64(seconds));
    while Instant::now() < end {
        if is_chunked {
            stream.write_chunk(block.clone()).await.map_err(|e| e.to_string())?;
        } else {
            stream.write_all(&block).await.map_err(|e| e.to_string())?;
        }
    }
    stream.finish().await.map_err(|e| e.to_string())?;
    session.close(0, "").await;
    Ok(())
}
