//! Lines of text as messages, in both directions: `cargo run -p noctule --example chat -- listen` prints the command for the other side.
//!
//! Messages are a `Sink` and a `Stream`; a line that is typed becomes one message.

use futures_util::{SinkExt, StreamExt};
use noctule::{Class, Endpoint, EndpointConfig, FlowOptions, Session};
use std::error::Error;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen"] => {
            let config = EndpointConfig::ephemeral()?;
            let key = config.identity.public();
            let server = Endpoint::bind("0.0.0.0:0".parse()?, config)?;
            println!("on the other side: chat call HOST:{} {key}", server.local_addr().port());
            let session = server.accept().await.ok_or("the endpoint is closed")?;
            talk(session).await
        }
        ["call", host, key] => {
            let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
            let session = client.connect_host(host, Some(key.parse()?)).await?;
            talk(session).await?;
            client.wait_idle().await;
            Ok(())
        }
        _ => Err("usage: chat listen | chat call HOST:PORT PUBLIC-KEY".into()),
    }
}

async fn talk(session: Session) -> Result<(), Box<dyn Error>> {
    let mut out = session.open_messages(FlowOptions { class: Class::Latency, ..FlowOptions::default() })?;
    out.send(format!("hello from {}", std::process::id()).into(), noctule::MessageOptions::default()).await?;
    let mut back = session.accept_messages().await?;
    let mut lines = BufReader::new(stdin()).lines();
    let mut events = session.events();
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => SinkExt::send(&mut out, line.into()).await?,
                None => break,
            },
            message = back.next() => match message {
                Some(message) => println!("> {}", String::from_utf8_lossy(&message?.data)),
                None => break,
            },
            Some(event) = events.next() => eprintln!("({event:?})"),
        }
    }
    out.finish().await?;
    session.close(0, "bye").await;
    Ok(())
}
