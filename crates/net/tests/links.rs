//! Links that a node keeps without sessions: the called end learns the caller's key, sessions come and go, both ends learn of the end.

mod support;

use noctule::{Code, ConnectError, FlowOptions, IncomingFlow, Link, MessageOptions};
use support::*;

async fn say(link: &Link, what: &'static str) {
    let session = link.open_session().expect("the link is up");
    let mut flow = session.open_messages(FlowOptions::default()).expect("a flow");
    flow.send(what.into(), MessageOptions::default()).await.expect("sent");
    within(flow.finish()).await.expect("delivered");
    within(session.close(0, "")).await;
}

#[tokio::test]
async fn both_ends_open_sessions_over_one_link_and_it_outlives_them() {
    let (caller, called) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let (ours, theirs) = within(async { tokio::join!(caller.connect_link(called.local_addr(), key_of(2)), called.accept_link()) }).await;
    let (ours, theirs) = (ours.expect("connected"), theirs.expect("open"));
    assert_eq!((ours.peer_key(), theirs.peer_key()), (key_of(2), key_of(1)));
    for _ in 0..2 {
        for (link, endpoint) in [(&ours, &called), (&theirs, &caller)] {
            let hearing = async {
                let session = endpoint.accept().await.expect("open");
                let IncomingFlow::Messages(mut flow) = session.accept_flow().await.expect("a flow") else { panic!("messages") };
                let message = flow.recv().await.expect("received").expect("a message");
                assert_eq!(flow.recv().await.expect("received"), None);
                session.closed().await;
                message.data
            };
            let ((), heard) = within(async { tokio::join!(say(link, "over"), hearing) }).await;
            assert_eq!(heard, "over");
        }
    }
    assert!(ours.stats().is_some() && theirs.stats().is_some(), "the link is still there");
    ours.close(7, "enough");
    let reason = within(theirs.closed()).await;
    assert!(reason.is_remote && reason.application == 7, "{reason}");
    assert_eq!(within(ours.closed()).await.application, 7);
    assert!(theirs.open_session().is_err());
}

#[tokio::test]
async fn a_link_that_was_there_before_anybody_asked_is_told() {
    let (caller, called) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let ours = within(caller.connect_link(called.local_addr(), key_of(2))).await.expect("connected");
    // The far end has accepted a session, so the link is up there as well.
    let session = ours.open_session().expect("up");
    within(session.accepted()).await.expect("taken");
    let theirs = within(called.accept_link()).await.expect("open");
    assert_eq!(theirs.peer_key(), key_of(1));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), caller.accept_link()).await.is_err(), "its own is no neighbour's");
}

#[tokio::test]
async fn dropping_a_link_ends_it_at_the_other_end_too() {
    let (caller, called) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let (ours, theirs) = within(async { tokio::join!(caller.connect_link(called.local_addr(), key_of(2)), called.accept_link()) }).await;
    drop(theirs.expect("open"));
    assert!(within(ours.expect("connected").closed()).await.is_remote);
    within(caller.wait_idle()).await;
}

#[tokio::test]
async fn a_neighbour_with_another_key_and_one_that_does_not_know_us_are_told_apart() {
    let caller = bind("127.0.0.1:0", config(1));
    let called = bind("127.0.0.1:0", config(2).with_authorised(vec![key_of(3)]));
    let error = within(caller.connect_link(called.local_addr(), key_of(9))).await.unwrap_err();
    assert!(matches!(error, ConnectError::WrongKey { .. } | ConnectError::Unreachable(_)), "{error}");
    // The handshake is over before the far end decides: its refusal ends the link.
    let refused = match within(caller.connect_link(called.local_addr(), key_of(2))).await {
        Ok(link) => within(link.closed()).await.code,
        Err(ConnectError::NotAuthorised) => Code::NotAuthorised,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(refused, Code::NotAuthorised);
    let told = within(called.refused()).await.expect("the owner hears of it");
    assert_eq!((told.peer, told.remote.ip(), told.reason), (key_of(1), caller.local_addr().ip(), Code::NotAuthorised));
    within(caller.wait_idle()).await;
}
