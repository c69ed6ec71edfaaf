//! `noctule proxy -W`: one connection for standard input and output, as ssh's ProxyCommand wants it.

use super::failure;
use crate::failure::Failure;
use noctule::FlowError;
use noctule_proxy::{Connection, Near, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt, stdin, stdout};

/// Bytes that are read or written at once.
const CHUNK: usize = 64 << 10;

/// Carries it until the target has ended its side.
pub async fn run(near: &Near, target: Target) -> Result<(), Failure> {
    let shown = target.to_string();
    let Connection { rest, mut recv, mut send } = near.connect(target).await.map_err(|answer| failure(shown.clone(), &answer))?;
    let reading = async move {
        let (mut input, mut buffer) = (stdin(), vec![0; CHUNK]);
        loop {
            match input.read(&mut buffer).await {
                Ok(0) => break,
                Ok(len) => send.write_all(&buffer[..len]).await?,
                Err(_) => break,
            }
        }
        send.finish().await
    };
    // The target may end its side later than this one, and what it says counts.
    let reading = tokio::spawn(reading);
    let mut output = stdout();
    let gone = |e: std::io::Error| Failure::system("standard output", e);
    output.write_all(&rest).await.map_err(gone)?;
    output.flush().await.map_err(gone)?;
    let mut chunks = Vec::new();
    let reset = |e: FlowError| match e {
        FlowError::Closed(_) => Failure::Here { text: format!("{shown}: the connection was reset"), code: 7 },
        e => e.into(),
    };
    while recv.read_chunks(&mut chunks, CHUNK).await.map_err(reset)? > 0 {
        for chunk in chunks.drain(..) {
            output.write_all(&chunk).await.map_err(gone)?;
        }
        output.flush().await.map_err(gone)?;
    }
    reading.abort();
    Ok(())
}
