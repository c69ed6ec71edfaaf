//! A file over one stream, checked by its length and hash of the far end: `cargo run -p noctule --example file -- FILE`
//!
//! Both ends run in this process, over loopback. `noctule send` does much more; this is what its core looks like.

use noctule::{Endpoint, EndpointConfig, FlowOptions};
use std::error::Error;
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: file FILE")?;
    let config = EndpointConfig::ephemeral()?;
    let key = config.identity.public();
    let server = Endpoint::bind("127.0.0.1:0".parse()?, config)?;
    let address = server.local_addr();
    let copy = std::env::temp_dir().join(format!("noctule-copy-{}", std::process::id()));
    let receiving = tokio::spawn({
        let copy = copy.clone();
        async move {
            let session = server.accept().await.ok_or("the endpoint is closed")?;
            let mut stream = session.accept_uni().await?;
            let mut file = tokio::fs::File::create(&copy).await?;
            let received = tokio::io::copy(&mut stream, &mut file).await?;
            file.flush().await?;
            session.closed().await;
            Ok::<_, Box<dyn Error + Send + Sync>>(received)
        }
    });

    let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
    let session = client.connect(address, Some(key)).await?;
    let mut stream = session.open_uni(FlowOptions::default())?;
    let mut file = tokio::fs::File::open(&name).await?;
    let sent = tokio::io::copy(&mut file, &mut stream).await?;
    stream.finish().await?; // every byte is at the far end's node
    let outcome = session.close(0, "done").await;
    let received = receiving.await?.map_err(|e| e.to_string())?;
    println!("sent {sent} bytes, received {received} bytes in {}; all delivered: {}", copy.display(), outcome.all_delivered);
    client.wait_idle().await;
    std::fs::remove_file(copy)?;
    Ok(())
}
