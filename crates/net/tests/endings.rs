//! How things end: refused, unreachable, killed, dropped, reset, stopped, closed in every order.

mod support;

use noctule::{
    Code, ConnectError, Endpoint, FlowError, FlowOptions, IncomingFlow, LinkEvent, MessageOptions, MessageReceiver, PublicKey,
    ReadToEndError, RecvStream, Session, TrySendError,
};
use std::time::Duration;
use support::*;

async fn accept_stream(session: &Session) -> RecvStream {
    match session.accept_flow().await.expect("a flow") {
        IncomingFlow::Stream { recv, .. } => recv,
        other => panic!("unexpected {other:?}"),
    }
}

async fn accept_messages(session: &Session) -> MessageReceiver {
    match session.accept_flow().await.expect("a flow") {
        IncomingFlow::Messages(recv) => recv,
        other => panic!("unexpected {other:?}"),
    }
}

#[tokio::test]
async fn a_port_in_use_is_told_apart_from_other_errors() {
    let first = bind("127.0.0.1:0", config(1));
    let error = Endpoint::bind(first.local_addr(), config(2)).unwrap_err();
    assert!(matches!(error, noctule::BindError::InUse(addr) if addr == first.local_addr()), "{error}");
}

#[test]
fn binding_outside_a_runtime_is_an_error_and_not_a_panic() {
    let error = Endpoint::bind("127.0.0.1:0".parse().unwrap(), config(1)).unwrap_err();
    assert!(matches!(error, noctule::BindError::NoRuntime), "{error}");
}

#[tokio::test]
async fn an_address_that_never_answers_is_unreachable_after_the_timeout() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = config(1);
    config.node.connect_timeout = Duration::from_millis(400);
    let client = bind("127.0.0.1:0", config);
    let error = within(client.connect(silent.local_addr().unwrap(), None)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(addr) if addr == silent.local_addr().unwrap()), "{error}");
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn the_wrong_family_a_wrong_name_and_a_malformed_one_are_told_apart() {
    let client = bind("127.0.0.1:0", config(1));
    assert!(matches!(client.connect("[::1]:9".parse().unwrap(), None).await, Err(ConnectError::Family { .. })));
    for malformed in ["localhost", "::1:9", "localhost:", ":9", "localhost:99999"] {
        assert!(matches!(client.connect_host(malformed, None).await, Err(ConnectError::Syntax(_))), "{malformed}");
    }
    let unknown = within(client.connect_host("no-such-host.invalid:9", None)).await;
    assert!(matches!(unknown, Err(ConnectError::Resolve { .. })), "{unknown:?}");
}

/// The refusal may arrive together with the proof, and be what is looked at first.
#[tokio::test]
async fn a_host_that_refuses_strangers_tells_its_key_all_the_same() {
    let mut closed = config(2);
    closed.node.authorised = Some(Vec::new());
    let server = bind("127.0.0.1:0", closed);
    for _ in 0..30 {
        let stranger = bind("127.0.0.1:0", noctule::EndpointConfig::ephemeral().unwrap());
        assert_eq!(within(stranger.key_of_host(&server.local_addr().to_string())).await.unwrap(), key_of(2));
    }
}

#[tokio::test]
async fn a_session_that_ended_before_it_was_accepted_says_where_it_came_from_and_gives_what_it_brought() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let session = within(client.connect(server.local_addr(), None)).await.unwrap();
    let mut stream = session.open_uni(Default::default()).unwrap();
    within(stream.write_all(b"and gone")).await.unwrap();
    within(stream.finish()).await.unwrap();
    within(session.close(0, "")).await;
    let accepted = within(server.accept()).await.unwrap();
    within(accepted.closed()).await;
    assert_eq!(accepted.remote_address().map(|address| address.port()), Some(client.local_addr().port()));
    assert_eq!(within(accept_stream(&accepted).await.read_to_end(100)).await.unwrap(), b"and gone");
}

#[tokio::test]
async fn a_peer_with_another_key_is_not_connected_to() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let expected = PublicKey([9; 32]);
    let error = within(client.connect(server.local_addr(), Some(expected))).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::WrongKey { expected: Some(key), got: Some(other) } if key == expected && other == key_of(2)),
        "{error:?}"
    );
    for key in [expected, key_of(2)] {
        assert!(error.to_string().contains(&key.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_closed_port_is_told_long_before_the_timeout() {
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = bind("127.0.0.1:0", config(1));
    let error = tokio::time::timeout(Duration::from_secs(4), client.connect(gone, None)).await.expect("well before 10 s").unwrap_err();
    assert!(matches!(error, ConnectError::NobodyListens(addr) if addr == gone), "{error}");
    assert_eq!(error.to_string(), format!("nobody listens at {gone}"));
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn an_established_session_does_not_mind_a_port_that_closes_for_a_while() {
    // The middleman's port closes for a moment. The ICMP errors that follow must not end the session: only a long silence may.
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 0).await;
    let address = middleman.addr;
    let (ours, theirs) = join(&client, address, &server).await;
    drop(middleman);
    let flow = ours.open_messages(FlowOptions::default()).unwrap();
    flow.send("into a closed port".into(), MessageOptions::default()).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), ours.closed()).await.is_err(), "only silence ends a session");
    let front = loop {
        // The old middleman's socket closes when its task ends, which may be a moment from now.
        match tokio::net::UdpSocket::bind(address).await {
            Ok(front) => break front,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let _middleman = Middleman::over(front, server.local_addr(), 0).await;
    let IncomingFlow::Messages(mut back) = within(theirs.accept_flow()).await.unwrap() else { panic!("messages") };
    assert_eq!(within(back.recv()).await.unwrap().unwrap().data, "into a closed port".as_bytes());
    drop((ours, theirs));
}

#[tokio::test]
async fn a_peer_behind_a_port_forwarder_of_the_same_host_is_not_taken_for_gone() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 0).await;
    let (ours, theirs) = join(&client, middleman.addr, &server).await;
    let flow = theirs.open_messages(FlowOptions::default()).unwrap();
    middleman.cut();
    flow.send("into silence".into(), MessageOptions::default()).await.unwrap();
    // Longer than the server takes to find out whether the middleman's port is closed.
    assert!(tokio::time::timeout(Duration::from_secs(5), theirs.closed()).await.is_err(), "the forwarder's socket is there");
    middleman.mend();
    let mut recv = within(accept_messages(&ours)).await;
    assert_eq!(within(recv.recv()).await.unwrap().unwrap().data, "into silence");
}

#[tokio::test]
async fn a_session_that_was_opened_early_is_told_whether_it_was_accepted() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let session = within(client.connect_early(server.local_addr(), Some(key_of(2)))).await.unwrap();
    let flow = session.open_messages(FlowOptions::default()).unwrap();
    flow.send("at once".into(), MessageOptions::default()).await.unwrap();
    within(session.accepted()).await.unwrap();
    let theirs = within(server.accept()).await.unwrap();
    let mut recv = within(accept_messages(&theirs)).await;
    assert_eq!(within(recv.recv()).await.unwrap().unwrap().data, "at once");
    // The session is over, and still counts as accepted.
    theirs.close(0, "").await;
    within(session.closed()).await;
    within(session.accepted()).await.unwrap();
}

#[tokio::test]
async fn a_pinned_key_that_is_right_connects_and_both_ends_see_each_others_key() {
    let (client, server, ours, theirs) = pair().await;
    let again = within(client.connect(server.local_addr(), Some(ours.peer_key()))).await.unwrap();
    assert_eq!(again.peer_key(), ours.peer_key());
    assert_ne!(ours.peer_key(), theirs.peer_key());
}

#[tokio::test]
async fn a_key_that_is_not_authorised_is_refused() {
    let server_key = {
        let (_client, _server, ours, _theirs) = pair().await;
        ours.peer_key()
    };
    let server = bind("127.0.0.1:0", config(2).with_authorised(vec![PublicKey([5; 32])]));
    let client = bind("127.0.0.1:0", config(1));
    for pinned in [Some(server_key), None] {
        let error = within(client.connect(server.local_addr(), pinned)).await.unwrap_err();
        assert!(matches!(error, ConnectError::NotAuthorised), "{error}");
        // Opened early, the session ends with the refusal, and `accepted` gives the same error.
        let early = within(client.connect_early(server.local_addr(), pinned)).await.unwrap();
        let error = within(early.accepted()).await.unwrap_err();
        assert!(matches!(error, ConnectError::NotAuthorised), "{error}");
        assert_eq!(within(early.closed()).await.reason.code, Code::NotAuthorised);
    }
}

#[tokio::test]
async fn a_killed_peer_ends_the_session_with_an_idle_timeout_and_all_that_wait_hear_of_it() {
    let mut impatient = config(1);
    impatient.node.idle_timeout = Duration::from_millis(800);
    let mut server_config = config(2);
    server_config.node.idle_timeout = Duration::from_millis(800);
    let (client, server) = (bind("127.0.0.1:0", impatient), bind("127.0.0.1:0", server_config));
    let middleman = Middleman::new(server.local_addr(), 0).await;
    let (ours, theirs) = join(&client, middleman.addr, &server).await;
    let flow = ours.open_messages(FlowOptions::default()).unwrap();
    flow.send("last words".into(), MessageOptions::default()).await.unwrap();
    let mut recv = within(accept_messages(&theirs)).await;
    assert_eq!(within(recv.recv()).await.unwrap().unwrap().data, "last words");
    middleman.cut();
    let (mine, closed, accepted, got) = within(async {
        tokio::join!(
            async {
                // Something has to be sent: an idle session does not take silence for an end.
                let _ = flow.send("anyone?".into(), MessageOptions::default()).await;
                ours.closed().await
            },
            theirs.closed(),
            theirs.accept_flow(),
            recv.recv(),
        )
    })
    .await;
    for outcome in [&mine, &closed] {
        assert!(matches!(outcome.reason.code, Code::IdleTimeout | Code::CircuitBreaker), "{outcome:?}");
        assert!(!outcome.reason.is_remote);
    }
    assert!(!mine.all_delivered, "the last message never arrived");
    assert!(accepted.is_err());
    assert!(matches!(got, Err(FlowError::Session(_))), "{got:?}");
    let back = flow.try_send("again".into(), MessageOptions::default()).unwrap_err();
    assert!(matches!(&back, TrySendError::Failed { error: FlowError::Session(_), .. }), "{back:?}");
    assert_eq!(back.into_message(), "again", "the message is given back");
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn a_graceful_close_delivers_everything_first_and_both_ends_know_it() {
    let (client, server, ours, theirs) = pair().await;
    let data = pattern(3 << 20, 5);
    let sending = async {
        let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
        stream.write_all(&data).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        drop(stream);
        ours.close(0, "done").await
    };
    let receiving = async {
        let mut recv = accept_stream(&theirs).await;
        let got = recv.read_to_end(data.len()).await.unwrap();
        (got, theirs.closed().await)
    };
    let (mine, (got, outcome)) = within(async { tokio::join!(sending, receiving) }).await;
    assert!(got == data);
    assert!(mine.all_delivered && mine.reason.is_clean(), "{mine:?}");
    assert!(outcome.all_received && outcome.reason.is_clean() && outcome.reason.is_remote, "{outcome:?}");
    assert_eq!(outcome.reason.reason, "done");
    within(client.wait_idle()).await;
    within(server.wait_idle()).await;
}

#[tokio::test]
async fn what_was_delivered_can_still_be_read_after_the_far_end_closed() {
    let (_client, _server, ours, theirs) = pair().await;
    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    let data = pattern(200_000, 6);
    stream.write_all(&data).await.unwrap();
    within(stream.finish()).await.unwrap();
    let mine = within(ours.close(7, "bye")).await;
    assert!(mine.all_delivered, "{mine:?}");
    let outcome = within(theirs.closed()).await;
    assert_eq!((outcome.reason.application, outcome.reason.reason.raw()), (7, "bye"));
    let mut recv = within(accept_stream(&theirs)).await;
    assert!(within(recv.read_to_end(data.len())).await.unwrap() == data);
}

#[tokio::test]
async fn an_abort_ends_both_sides_at_once_with_its_code() {
    let (_client, _server, ours, theirs) = pair().await;
    ours.abort(3, "no time");
    assert_eq!(within(ours.closed()).await.reason.application, 3);
    let outcome = within(theirs.closed()).await;
    assert_eq!(outcome.reason.application, 3);
    assert!(outcome.reason.is_remote);
}

#[tokio::test]
async fn a_dropped_sender_finishes_and_a_dropped_receiver_stops() {
    let (_client, _server, ours, theirs) = pair().await;
    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    stream.write_all(b"a sentence").await.unwrap();
    let mut recv = within(accept_stream(&theirs)).await;
    drop(stream);
    assert_eq!(within(recv.read_to_end(100)).await.unwrap(), b"a sentence");

    let messages = ours.open_messages(FlowOptions::default()).unwrap();
    messages.send("the last word".into(), MessageOptions::default()).await.unwrap();
    drop(messages);
    let mut recv = within(theirs.accept_messages()).await.unwrap();
    assert_eq!(within(recv.recv()).await.unwrap().unwrap().data, "the last word");
    assert_eq!(within(recv.recv()).await.unwrap(), None);

    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    stream.write_all(b"hello").await.unwrap();
    drop(within(accept_stream(&theirs)).await);
    let error = within(async {
        loop {
            if let Err(error) = stream.write(&[0; 10_000]).await {
                return error;
            }
        }
    })
    .await;
    assert!(matches!(&error, FlowError::Closed(reason) if reason.code == Code::Stopped), "{error}");
}

#[tokio::test]
async fn reset_and_stop_carry_the_applications_code() {
    let (_client, _server, ours, theirs) = pair().await;
    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    stream.write_all(b"x").await.unwrap();
    let mut recv = within(accept_stream(&theirs)).await;
    stream.reset(77);
    let error = within(async {
        loop {
            if let Err(error) = recv.read_chunk(100).await {
                return error;
            }
        }
    })
    .await;
    assert!(matches!(&error, FlowError::Closed(reason) if reason.application == 77), "{error:?}");

    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    stream.write_all(b"x").await.unwrap();
    within(accept_stream(&theirs)).await.stop(78);
    let error = within(async {
        loop {
            if let Err(error) = stream.write(&[0; 1000]).await {
                return error;
            }
        }
    })
    .await;
    assert!(matches!(&error, FlowError::Closed(reason) if reason.application == 78), "{error:?}");
}

#[tokio::test]
async fn sessions_outlive_their_endpoint_handle_and_the_port_is_free_after_the_last() {
    let (client, server, ours, theirs) = pair().await;
    let port = client.local_addr();
    drop(client);
    let flow = ours.open_messages(FlowOptions::default()).unwrap();
    flow.send("still here".into(), MessageOptions::default()).await.unwrap();
    let mut recv = within(accept_messages(&theirs)).await;
    assert_eq!(within(recv.recv()).await.unwrap().unwrap().data, "still here");
    drop(flow);
    drop(ours);
    let outcome = within(theirs.closed()).await;
    assert!(outcome.reason.is_clean(), "{outcome:?}");
    within(async {
        while std::net::UdpSocket::bind(port).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    drop(server);
}

#[tokio::test]
async fn a_closed_endpoint_ends_its_sessions_and_accepts_no_more() {
    let (client, server, ours, theirs) = pair().await;
    let (accepted, ()) = within(async { tokio::join!(server.accept(), async { server.close(9, "maintenance") }) }).await;
    assert!(accepted.is_none());
    let outcome = within(ours.closed()).await;
    assert_eq!((outcome.reason.application, outcome.reason.reason.raw(), outcome.reason.is_remote), (9, "maintenance", true));
    assert!(!within(theirs.closed()).await.reason.is_remote);
    assert!(matches!(server.connect(client.local_addr(), None).await, Err(ConnectError::EndpointClosed)));
    within(server.wait_idle()).await;
}

#[test]
fn handles_that_outlive_their_runtime_report_the_end_instead_of_hanging() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ours, theirs) = runtime.block_on(async {
        let (_client, _server, ours, theirs) = pair().await;
        (ours, theirs)
    });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(async {
        assert_eq!(within(ours.closed()).await.reason.code, Code::Shutdown);
        assert!(within(theirs.accept_flow()).await.is_err());
    });
}

#[tokio::test]
async fn an_attempt_that_is_dropped_leaves_nothing_behind() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = bind("127.0.0.1:0", config(1));
    let attempt = client.connect(silent.local_addr().unwrap(), None);
    assert!(tokio::time::timeout(Duration::from_millis(50), attempt).await.is_err());
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn a_stream_longer_than_the_reader_takes_has_an_error_of_its_own() {
    let (_client, _server, ours, theirs) = pair().await;
    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    stream.write_all(&[7; 1000]).await.unwrap();
    drop(stream);
    let mut recv = within(accept_stream(&theirs)).await;
    assert_eq!(within(recv.read_to_end(999)).await, Err(ReadToEndError::TooLong { limit: 999 }));
}

#[tokio::test]
async fn the_peers_key_stays_known_when_the_session_is_gone() {
    let (client, _server, ours, theirs) = pair().await;
    within(ours.close(0, "")).await;
    within(theirs.closed()).await;
    client.close(0, "");
    assert_eq!((ours.peer_key(), theirs.peer_key()), (key_of(2), key_of(1)));
}

#[tokio::test]
async fn events_tell_the_far_ends_close_and_the_end_and_nothing_after_it() {
    let (_client, _server, ours, theirs) = pair().await;
    let mut events = theirs.events();
    drop(theirs.events());
    within(ours.close(9, "enough")).await;
    let mut told = Vec::new();
    while let Some(event) = within(events.next()).await {
        told.push(event);
    }
    assert!(matches!(&told[0], LinkEvent::Closing(r) if (r.application, r.is_remote) == (9, true)), "{told:?}");
    assert!(matches!(&told[..], [_, LinkEvent::Closed(r)] if r.application == 9), "{told:?}");
    // A subscriber that comes after the end hears of it, too.
    let mut late = theirs.events();
    assert!(matches!(within(late.next()).await, Some(LinkEvent::Closed(_))));
    assert_eq!(within(late.next()).await, None);
}

#[tokio::test]
async fn silence_and_its_end_are_events() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 0).await;
    let (ours, _theirs) = join(&client, middleman.addr, &server).await;
    let mut events = ours.events();
    middleman.cut();
    let flow = ours.open_messages(FlowOptions::default()).unwrap();
    flow.send("is anybody there?".into(), MessageOptions::default()).await.unwrap();
    assert_eq!(within(events.next()).await, Some(LinkEvent::Silent));
    middleman.mend();
    assert_eq!(within(events.next()).await, Some(LinkEvent::Heard));
}

/// Regression: a far end that had answered a question and was heard was taken for a new process, because it was silent again when the answer was judged.
#[tokio::test]
async fn a_link_that_was_heard_after_a_question_is_not_given_up_in_its_next_silence() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 0).await;
    let (ours, _theirs) = join(&client, middleman.addr, &server).await;
    let mut events = ours.events();
    let flow = ours.open_messages(FlowOptions::default()).unwrap();
    let talking = tokio::spawn(async move {
        while flow.send("is anybody there?".into(), MessageOptions::default()).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    middleman.cut();
    assert_eq!(within(events.next()).await, Some(LinkEvent::Silent));
    middleman.mend();
    assert_eq!(within(events.next()).await, Some(LinkEvent::Heard));
    // The question is answered now, and judged some two seconds later.
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    middleman.cut();
    let closed = async {
        loop {
            if let Some(LinkEvent::Closed(reason)) = events.next().await {
                return reason;
            }
        }
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(4), closed).await;
    assert!(ended.is_err(), "{ended:?}");
    talking.abort();
}

#[tokio::test]
async fn a_session_that_is_being_closed_opens_no_flow_and_says_that_it_is_over() {
    let (_client, _server, ours, _theirs) = pair().await;
    let mut closing = std::pin::pin!(ours.close(7, "enough"));
    // One poll begins the close; it stays pending, since the far end has not answered.
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(closing.as_mut().poll(cx).is_pending())).await);
    match ours.open_uni(Default::default()) {
        Err(noctule::OpenError::Session(closed)) => assert_eq!(closed.0.reason.application, 7),
        other => panic!("{other:?}"),
    }
}

/// What a flow reserved goes back when it is over, however it ended: memory for some 40 flows serves many more, one after the other.
#[tokio::test]
async fn flows_that_end_in_any_way_give_their_memory_back() {
    for case in ["read", "dropped unread", "stopped", "reset", "never finished", "unanswered", "answer dropped"] {
        let mut server = config(2);
        server.node.node_memory = 4 << 20;
        let (_client, _server, ours, theirs) = pair_on("127.0.0.1:0", config(1), server).await;
        for n in 0..200 {
            if n % 20 == 0 {
                eprintln!("{case} {n}");
            }
            let (mut send, mut recv) = ours.open_bi(Default::default()).unwrap_or_else(|e| panic!("{case} {n}: {e}"));
            within(send.write_all(b"question")).await.unwrap_or_else(|e| panic!("{case} {n}: {e}"));
            let (mut back, mut taken) = within(theirs.accept_bi()).await.unwrap();
            match case {
                "reset" => send.reset(7),
                "never finished" => {
                    assert_eq!(within(taken.read_chunk(100)).await.unwrap().unwrap(), &b"question"[..]);
                    drop(taken);
                    within(back.write_all(b"answer")).await.unwrap();
                    drop(back);
                    assert_eq!(within(recv.read_to_end(100)).await.unwrap_or_else(|e| panic!("{case} {n}: {e}")), b"answer");
                    drop(send);
                    continue;
                }
                _ => drop(send),
            }
            match case {
                "dropped unread" => drop(taken),
                "stopped" => taken.stop(3),
                "reset" => drop(within(taken.read_to_end(100)).await.unwrap_err()),
                _ => assert_eq!(within(taken.read_to_end(100)).await.unwrap(), b"question"),
            }
            match case {
                "unanswered" => drop(back),
                "answer dropped" => {
                    drop(within(back.write_all(b"answer")).await);
                    drop(recv);
                }
                _ => {
                    within(back.write_all(b"answer")).await.unwrap();
                    drop(back);
                    assert_eq!(within(recv.read_to_end(100)).await.unwrap_or_else(|e| panic!("{case} {n}: {e}")), b"answer");
                }
            }
        }
    }
}
