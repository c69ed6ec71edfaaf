//! Endpoints that move in mid-transfer, on loopback.

mod support;

use noctule::FlowOptions;
use std::future::Future;
use std::time::Duration;
use support::*;

/// Sends 20 MB on a stream while `midway` runs, and checks that the same came.
async fn transfer_while(ours: &noctule::Session, theirs: &noctule::Session, midway: impl Future<Output = ()>) {
    let data = pattern(20 << 20, 7);
    let sending = async {
        let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
        stream.write_all(&data).await.unwrap();
        stream.finish().await.unwrap();
    };
    let receiving = async {
        let noctule::IncomingFlow::Stream { recv: mut stream, .. } = theirs.accept_flow().await.unwrap() else { panic!("a stream") };
        let mut got = Vec::new();
        while let Some(chunk) = stream.read_chunk(1 << 20).await.unwrap() {
            got.extend_from_slice(&chunk);
        }
        got
    };
    let (got, (), ()) = within(async { tokio::join!(receiving, sending, midway) }).await;
    assert!(got == data);
}

#[tokio::test]
async fn either_end_moves_to_another_port_and_address_in_mid_transfer() {
    let (client, server, ours, theirs) = pair().await;
    transfer_while(&ours, &theirs, async {
        for (end, addr) in [(&client, "127.0.0.2:0"), (&server, "127.0.0.3:0"), (&client, "127.0.0.1:0")] {
            tokio::time::sleep(Duration::from_millis(15)).await;
            let before = end.local_addr();
            end.rebind(addr.parse().unwrap()).unwrap();
            assert!(end.local_addr() != before && end.local_addr().port() != 0);
        }
    })
    .await;
    let path = |s: &noctule::Session| s.stats().paths()[0].clone();
    // With nothing left to send, the far end may learn of the last move only now.
    within(async {
        while path(&theirs).remote != client.local_addr() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(path(&ours).remote, server.local_addr());
    assert!(path(&ours).migrations >= 2);
    let taken = server.local_addr();
    assert!(matches!(client.rebind(taken), Err(noctule::BindError::InUse(a)) if a == taken));
    transfer_while(&ours, &theirs, async {}).await;
}
