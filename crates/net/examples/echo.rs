//! A server that sends back what it reads, and a client: `cargo run -p noctule --example echo`
//!
//! Both run in this process, over loopback. `echo serve ADDRESS KEYFILE` and `echo call HOST:PORT PUBLIC-KEY` run them on two hosts.

use noctule::{Endpoint, EndpointConfig, FlowOptions, SecretKey, Session};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let config = EndpointConfig::ephemeral()?;
            let key = config.identity.public();
            let server = Endpoint::bind("127.0.0.1:0".parse()?, config)?;
            let address = server.local_addr().to_string();
            tokio::spawn(serve(server));
            call(&address, &key.to_string()).await
        }
        ["serve", address, key_file] => {
            // `noctule keygen -o KEYFILE` makes one.
            let identity: SecretKey = std::fs::read_to_string(key_file)?.trim().parse()?;
            println!("serving as {}", identity.public());
            serve(Endpoint::bind(address.parse()?, EndpointConfig::new(identity))?).await;
            Ok(())
        }
        ["call", host, key] => call(host, key).await,
        _ => Err("usage: echo | echo serve ADDRESS:PORT KEYFILE | echo call HOST:PORT PUBLIC-KEY".into()),
    }
}

async fn serve(server: Endpoint) {
    while let Some(session) = server.accept().await {
        tokio::spawn(answer(session));
    }
}

async fn answer(session: Session) {
    while let Ok((mut send, mut recv)) = session.accept_bi().await {
        tokio::spawn(async move {
            // Both halves are tokio's AsyncRead and AsyncWrite. Dropping `send` finishes it.
            tokio::io::copy(&mut recv, &mut send).await
        });
    }
}

async fn call(host: &str, key: &str) -> Result<(), Box<dyn Error>> {
    let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
    let session = client.connect_host(host, Some(key.parse()?)).await?;
    let (mut send, mut recv) = session.open_bi(FlowOptions::default())?;
    send.write_all(b"across a lossy link").await?;
    send.finish().await?; // the far end has it
    println!("{}", String::from_utf8(recv.read_to_end(1000).await?)?);
    session.close(0, "done").await;
    client.wait_idle().await;
    Ok(())
}
