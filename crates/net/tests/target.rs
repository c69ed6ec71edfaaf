//! The rate that a session tells its application to produce.

mod support;

use noctule::{CongestionControl, LinkEvent};
use support::{config, pair, pair_on, within};

/// What is sent at any rate is loopback's to carry: the rate grows while something is sent.
#[tokio::test]
async fn an_application_is_told_the_rate_that_it_should_produce() {
    let (_client, _server, ours, theirs) = pair_on("127.0.0.1:0", config(1).with_congestion(CongestionControl::Gcc), config(2)).await;
    let mut rates = ours.target_rates();
    let mut events = ours.events();
    let first = within(rates.next()).await.expect("the present rate, at once");
    assert_eq!(Some(first), ours.target_rate());
    assert!((0.02..1.0).contains(&first.mbit()), "{first:?}");

    let mut send = ours.open_uni(Default::default()).unwrap();
    let reading = async {
        let mut recv = theirs.accept_uni().await.unwrap();
        while let Ok(Some(_)) = recv.read_chunk(1 << 16).await {}
    };
    let writing = async {
        let block = vec![7; 1 << 16];
        while send.write_all(&block).await.is_ok() {}
    };
    // What is told grows with what the path has shown to carry.
    let listening = async { while rates.next().await.expect("the session lives").bytes_per_sec() < 2.0 * first.bytes_per_sec() {} };
    within(async {
        tokio::select! {
            () = reading => unreachable!("the stream is not finished"),
            () = writing => unreachable!("it is not closed"),
            () = listening => {}
        }
    })
    .await;
    assert!(matches!(within(events.next()).await, Some(LinkEvent::TargetRate(_))));

    // A control for bulk has no rate to tell; the stream is silent, and ends with the session.
    ours.set_congestion(CongestionControl::Model);
    assert_eq!(ours.target_rate(), None);
    ours.abort(0, "");
    within(async { while rates.next().await.is_some() {} }).await;
    assert_eq!(within(rates.next()).await, None);
}

#[tokio::test]
async fn a_control_for_bulk_tells_no_rate() {
    let (_client, _server, ours, _theirs) = pair().await;
    assert_eq!(ours.target_rate(), None);
    let mut rates = ours.target_rates();
    ours.close(0, "").await;
    assert_eq!(within(rates.next()).await, None);
}
