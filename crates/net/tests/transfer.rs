//! What flows carry arrives whole: streams and messages, IPv4 and IPv6, many sessions, slow readers, loss.

mod support;

use noctule::{Bytes, FlowKind, FlowOptions, IncomingFlow, MessageOptions, Mode, RecvStream, SendStream, Session};
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn accept_stream(session: &Session) -> (RecvStream, Option<SendStream>) {
    match session.accept_flow().await.expect("a flow") {
        IncomingFlow::Stream { recv, send } => (recv, send),
        other => panic!("unexpected {other:?}"),
    }
}

async fn accept_messages(session: &Session) -> noctule::MessageReceiver {
    match session.accept_flow().await.expect("a flow") {
        IncomingFlow::Messages(recv) => recv,
        other => panic!("unexpected {other:?}"),
    }
}

async fn send_and_compare(ours: &Session, theirs: &Session, len: usize) {
    let data = pattern(len, 7);
    let sending = async {
        let mut stream = ours.open_uni(FlowOptions { tag: 42, ..Default::default() }).unwrap();
        stream.write_all(&data).await.unwrap();
        stream.finish().await.unwrap();
    };
    let receiving = async {
        let flow = theirs.accept_flow().await.unwrap();
        assert_eq!((flow.tag(), flow.options().kind), (42, FlowKind::Stream));
        let IncomingFlow::Stream { mut recv, send: None } = flow else { panic!("a one-way stream was opened") };
        recv.read_to_end(len).await.unwrap()
    };
    let (_, got) = within(async { tokio::join!(sending, receiving) }).await;
    assert_eq!(got.len(), len);
    assert!(got == data, "the bytes differ");
}

#[tokio::test]
async fn a_file_of_32_mib_arrives_whole_over_ipv4() {
    let (_client, _server, ours, theirs) = pair().await;
    send_and_compare(&ours, &theirs, 32 << 20).await;
}

#[tokio::test]
async fn blocks_that_are_handed_over_and_bytes_that_are_copied_keep_their_order() {
    let (_client, _server, ours, theirs) = pair().await;
    let data = Bytes::from(pattern(6 << 20, 9));
    let sending = async {
        let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
        let (mut rest, mut step) = (data.clone(), 1);
        while !rest.is_empty() {
            // Parts both larger and smaller than the buffer of what may wait.
            let part = rest.split_to(rest.len().min(step * 40_009 % 1_500_000));
            match step % 3 {
                0 => stream.write_all(&part).await.unwrap(),
                _ => stream.write_chunk(part).await.unwrap(),
            }
            step += 1;
        }
        stream.write_chunk(Bytes::new()).await.unwrap();
        stream.finish().await.unwrap();
        assert!(stream.write_chunk(Bytes::from_static(b"late")).await.is_err(), "nothing follows the end");
    };
    let receiving = async {
        let (mut recv, _) = accept_stream(&theirs).await;
        recv.read_to_end(data.len()).await.unwrap()
    };
    let (_, got) = within(async { tokio::join!(sending, receiving) }).await;
    assert!(got == data, "the bytes differ");
}

#[tokio::test]
async fn a_block_that_is_handed_over_in_polls_keeps_its_place() {
    use std::future::poll_fn;
    let (_client, _server, ours, theirs) = pair().await;
    let data = Bytes::from(pattern(4 << 20, 3));
    let sending = async {
        let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
        let (mut rest, mut polls) = (data.clone(), 0);
        while !rest.is_empty() {
            let before = rest.len();
            let taken = poll_fn(|cx| stream.poll_write_chunk(cx, &mut rest)).await.unwrap();
            assert_eq!(before - rest.len(), taken);
            polls += 1;
        }
        assert!(polls > 1, "4 MiB do not wait at once");
        assert_eq!(poll_fn(|cx| stream.poll_write_chunk(cx, &mut rest)).await.unwrap(), 0);
        stream.finish().await.unwrap();
    };
    let receiving = async {
        let (mut recv, _) = accept_stream(&theirs).await;
        recv.read_to_end(data.len()).await.unwrap()
    };
    let (_, got) = within(async { tokio::join!(sending, receiving) }).await;
    assert!(got == data, "the bytes differ");
}

#[tokio::test]
async fn an_answer_that_comes_after_the_question_was_delivered_is_read() {
    let (_client, _server, ours, theirs) = pair().await;
    within(async {
        let (mut ask, mut listen) = ours.open_bi(FlowOptions::default()).unwrap();
        ask.write_all(b"how are you?").await.unwrap();
        let (mut answer, mut hear) = theirs.accept_bi().await.unwrap();
        let (delivered, heard) = tokio::join!(ask.finish(), hear.read_to_end(100));
        delivered.unwrap();
        // No byte of the answer has been sent yet, and none of the question is in flight any more.
        assert_eq!(heard.unwrap(), b"how are you?");
        answer.write_all(b"well").await.unwrap();
        let (delivered, heard) = tokio::join!(answer.finish(), listen.read_to_end(100));
        delivered.unwrap();
        assert_eq!(heard.unwrap(), b"well");
    })
    .await;
}

#[tokio::test]
async fn a_file_of_8_mib_arrives_whole_over_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on this host");
        return;
    }
    let (_client, _server, ours, theirs) = pair_on("[::1]:0", config(1), config(2)).await;
    assert!(ours.remote_address().unwrap().is_ipv6());
    send_and_compare(&ours, &theirs, 8 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_arrives_whole_on_a_runtime_with_several_threads() {
    let (_client, _server, ours, theirs) = pair().await;
    send_and_compare(&ours, &theirs, 16 << 20).await;
}

#[tokio::test]
async fn a_file_arrives_whole_although_every_tenth_datagram_is_lost() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 10).await;
    let (ours, theirs) = join(&client, middleman.addr, &server).await;
    send_and_compare(&ours, &theirs, 4 << 20).await;
    let outcome = within(ours.close(0, "done")).await;
    assert!(outcome.all_delivered, "{outcome:?}");
    assert!(ours.stats().paths()[0].lost_packets > 0, "the middleman lost something");
}

#[tokio::test]
async fn a_client_that_does_not_care_about_families_reaches_an_ipv4_server_by_name() {
    let server = bind("127.0.0.1:0", config(2));
    let client = noctule::Endpoint::client(config(1)).unwrap();
    let host = format!("127.0.0.1:{}", server.local_addr().port());
    let session = within(client.connect_host(&host, None)).await.unwrap();
    assert_eq!(session.remote_address(), Some(server.local_addr()));
}

#[tokio::test]
async fn a_conversation_over_a_two_way_stream() {
    let (_client, _server, ours, theirs) = pair().await;
    let question = pattern(300_000, 1);
    let asking = async {
        let (mut send, mut recv) = ours.open_bi(FlowOptions::default()).unwrap();
        send.write_all(&question).await.unwrap();
        send.shutdown().await.unwrap();
        let mut answer = Vec::new();
        AsyncReadExt::read_to_end(&mut recv, &mut answer).await.unwrap();
        answer
    };
    let answering = async {
        let (mut recv, send) = accept_stream(&theirs).await;
        let mut send = send.expect("a two-way stream was opened");
        tokio::io::copy(&mut recv, &mut send).await.unwrap();
        send.finish().await.unwrap();
    };
    let (answer, ()) = within(async { tokio::join!(asking, answering) }).await;
    assert!(answer == question);
}

#[tokio::test]
async fn ordered_messages_of_all_sizes_arrive_once_and_in_order() {
    let (_client, _server, ours, theirs) = pair().await;
    let sizes = [0, 1, 2, 100, 1399, 1400, 1401, 1450, 1500, 5_000, 70_000, 1 << 20];
    let sending = async {
        let mut flow = ours.open_messages(FlowOptions::default()).unwrap();
        for i in 0..120 {
            let data = pattern(sizes[i % sizes.len()], i as u64);
            assert_eq!(flow.send(data.into(), MessageOptions::default()).await.unwrap(), i as u64);
        }
        flow.finish().await.unwrap();
    };
    let receiving = async {
        let mut flow = accept_messages(&theirs).await;
        for i in 0..120 {
            let message = flow.recv().await.unwrap().expect("not the end");
            assert_eq!(message.id, i as u64);
            assert!(message.data == pattern(sizes[i % sizes.len()], i as u64), "message {i}");
        }
        assert_eq!(flow.recv().await.unwrap(), None);
        assert_eq!(flow.recv().await.unwrap(), None, "the end stays the end");
    };
    within(async { tokio::join!(sending, receiving) }).await;
}

#[tokio::test]
async fn unordered_messages_arrive_once_each_under_loss() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 8).await;
    let (ours, theirs) = join(&client, middleman.addr, &server).await;
    let sending = async {
        let mut flow = ours.open_messages(FlowOptions { kind: FlowKind::UnorderedMessages, ..Default::default() }).unwrap();
        for i in 0..500u64 {
            flow.send(pattern(700, i).into(), MessageOptions::default()).await.unwrap();
        }
        flow.finish().await.unwrap();
    };
    let receiving = async {
        let mut flow = accept_messages(&theirs).await;
        let mut seen = vec![false; 500];
        while let Some(message) = flow.recv().await.unwrap() {
            assert!(message.data == pattern(700, message.id));
            assert!(!std::mem::replace(&mut seen[message.id as usize], true), "message {} came twice", message.id);
        }
        assert!(seen.iter().all(|s| *s));
    };
    within(async { tokio::join!(sending, receiving) }).await;
}

#[tokio::test]
async fn messages_with_a_lifetime_arrive_on_a_good_path() {
    let (_client, _server, ours, theirs) = pair().await;
    let options =
        FlowOptions { mode: Mode::Btp, kind: FlowKind::UnorderedMessages, lifetime: Some(Duration::from_secs(2)), ..Default::default() };
    let flow = ours.open_messages(options).unwrap();
    for i in 0..50u64 {
        flow.send(pattern(500, i).into(), MessageOptions::default()).await.unwrap();
    }
    let mut recv = within(accept_messages(&theirs)).await;
    for _ in 0..50 {
        let message = within(recv.recv()).await.unwrap().expect("not the end");
        assert!(message.data == pattern(500, message.id));
    }
}

#[tokio::test]
async fn a_message_beyond_the_receivers_limit_fails_at_once_with_both_numbers() {
    let mut small = config(2);
    small.node.max_message = 100_000;
    let (_client, _server, ours, _theirs) = pair_on("127.0.0.1:0", config(1), small).await;
    let flow = ours.open_messages(FlowOptions::default()).unwrap();
    let error = flow.try_send(Bytes::from(vec![0; 100_001]), MessageOptions::default()).unwrap_err();
    let noctule::TrySendError::Failed { message, error } = error else { panic!("{error:?}") };
    assert_eq!(error, noctule::FlowError::MessageTooLarge { size: 100_001, limit: 100_000 });
    assert_eq!(message.len(), 100_001);
    flow.send(Bytes::from(vec![0; 100_000]), MessageOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_reader_that_sleeps_stops_the_writer_and_memory_stays_bounded() {
    let mut tight = config(2);
    tight.node.flow_memory = 1 << 20;
    let mut client = config(1);
    client.node.flow_memory = 1 << 20;
    let (client, server, ours, theirs) = pair_on("127.0.0.1:0", client, tight).await;
    let data = pattern(8 << 20, 3);
    let mut stream = ours.open_uni(FlowOptions::default()).unwrap();
    let mut written = 0;
    // Until a write makes no progress for half a second: the receiver reads nothing.
    while let Ok(n) = tokio::time::timeout(Duration::from_millis(500), stream.write(&data[written..])).await {
        written += n.unwrap();
        assert!(written < data.len(), "back-pressure reaches the writer");
    }
    assert!(written > 500_000, "{written}");
    for endpoint in [&client, &server] {
        let memory = endpoint.stats().memory;
        assert!(memory.peak < 4 << 20, "{memory:?}");
    }
    let (mut recv, _) = within(accept_stream(&theirs)).await;
    let rest = data[written..].to_vec();
    let writing = async move {
        stream.write_all(&rest).await.unwrap();
        stream.finish().await.unwrap();
    };
    let ((), got) = within(async { tokio::join!(writing, recv.read_to_end(data.len())) }).await;
    assert!(got.unwrap() == data);
}

#[tokio::test]
async fn sixty_sessions_with_three_flows_each_do_not_mix() {
    // Both nodes set memory aside for each open flow: small shares make room for many flows.
    let small = |name| {
        let mut config = config(name);
        (config.node.flow_memory, config.node.max_message) = (1 << 20, 100_000);
        // Each session has a link of its own, all of one key.
        config.node.max_links_per_key = 60;
        config
    };
    let (client, server) = (bind("127.0.0.1:0", small(1)), bind("127.0.0.1:0", small(2)));
    let serve = tokio::spawn({
        let server = server.clone();
        async move {
            let mut sessions = tokio::task::JoinSet::new();
            for _ in 0..60 {
                let session = server.accept().await.expect("open");
                sessions.spawn(async move {
                    let mut flows = tokio::task::JoinSet::new();
                    for _ in 0..3 {
                        let flow = session.accept_flow().await.expect("a flow");
                        let tag = flow.tag();
                        let IncomingFlow::Stream { mut recv, .. } = flow else { panic!("a stream was opened") };
                        flows.spawn(async move {
                            let got = recv.read_to_end(1 << 20).await.expect("read");
                            assert!(got == pattern(20_000, tag), "flow {tag}");
                        });
                    }
                    while let Some(flow) = flows.join_next().await {
                        flow.expect("flow");
                    }
                    session.closed().await
                });
            }
            let mut outcomes = Vec::new();
            while let Some(outcome) = sessions.join_next().await {
                outcomes.push(outcome.expect("session"));
            }
            outcomes
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..60u64 {
        let (client, to) = (client.clone(), server.local_addr());
        clients.spawn(async move {
            let session = client.connect(to, None).await.expect("connected");
            for j in 0..3 {
                let tag = i * 3 + j;
                let mut stream = session.open_uni(FlowOptions { tag, ..Default::default() }).expect("a flow");
                stream.write_all(&pattern(20_000, tag)).await.expect("written");
                stream.shutdown().await.expect("finished");
            }
            session.close(0, "").await
        });
    }
    within(async {
        while let Some(outcome) = clients.join_next().await {
            let outcome = outcome.expect("client");
            assert!(outcome.all_delivered, "{outcome:?}");
        }
    })
    .await;
    for outcome in within(serve).await.unwrap() {
        assert!(outcome.all_received && outcome.reason.is_clean(), "{outcome:?}");
    }
    within(client.wait_idle()).await;
}

#[tokio::test]
async fn reading_and_writing_can_be_cancelled_at_any_moment_without_losing_or_doubling_anything() {
    let (_client, _server, ours, theirs) = pair().await;
    let blink = Duration::from_micros(300);
    let sending = async {
        let mut flow = ours.open_messages(FlowOptions::default()).unwrap();
        for i in 0..300u64 {
            let data = Bytes::from(pattern(40_000, i));
            while tokio::time::timeout(blink, flow.send(data.clone(), MessageOptions::default())).await.is_err() {}
        }
        while tokio::time::timeout(blink, flow.finish()).await.is_err() {}
    };
    let receiving = async {
        let mut flow = loop {
            if let Ok(Ok(IncomingFlow::Messages(flow))) = tokio::time::timeout(blink, theirs.accept_flow()).await {
                break flow;
            }
        };
        let mut next = 0;
        loop {
            match tokio::time::timeout(blink, flow.recv()).await {
                Err(_) => {}
                Ok(Ok(None)) => break,
                Ok(Ok(Some(message))) => {
                    assert_eq!(message.id, next);
                    assert!(message.data == pattern(40_000, next));
                    next += 1;
                }
                Ok(Err(error)) => panic!("{error}"),
            }
        }
        assert_eq!(next, 300);
    };
    within(async { tokio::join!(sending, receiving) }).await;
}

#[tokio::test]
async fn each_kind_of_flow_is_accepted_by_its_own_call_in_any_order() {
    let (_client, _server, ours, theirs) = pair().await;
    let (mut ask, mut answer) = ours.open_bi(FlowOptions::default()).unwrap();
    ask.write_all(b"question").await.unwrap();
    let mut one_way = ours.open_uni(FlowOptions::default()).unwrap();
    one_way.write_all(b"news").await.unwrap();
    drop(one_way);
    let messages = ours.open_messages(FlowOptions::default()).unwrap();
    messages.send("note".into(), MessageOptions::default()).await.unwrap();
    ours.send_datagram("tick".into()).unwrap();

    assert_eq!(within(theirs.recv_datagram()).await.unwrap(), "tick");
    let mut notes = within(theirs.accept_messages()).await.unwrap();
    assert_eq!(within(notes.recv()).await.unwrap().unwrap().data, "note");
    let mut news = within(theirs.accept_uni()).await.unwrap();
    assert_eq!(within(news.read_to_end(100)).await.unwrap(), b"news");
    let (mut back, mut asked) = within(theirs.accept_bi()).await.unwrap();
    back.write_all(b"answer").await.unwrap();
    drop(back);
    assert_eq!(within(answer.read_to_end(100)).await.unwrap(), b"answer");
    drop(ask);
    assert_eq!(within(asked.read_to_end(100)).await.unwrap(), b"question");
    // The flow that carries the datagrams is internal: `accept_flow` does not give it out.
    let other = tokio::time::timeout(Duration::from_millis(100), theirs.accept_flow()).await;
    assert!(other.is_err(), "{other:?}");
}

#[tokio::test]
async fn datagrams_go_both_ways_over_a_path_that_loses_and_may_be_larger_than_a_packet() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
    let middleman = Middleman::new(server.local_addr(), 20).await;
    let (ours, theirs) = join(&client, middleman.addr, &server).await;
    let echo = tokio::spawn(async move {
        while let Ok(data) = theirs.recv_datagram().await {
            theirs.send_datagram(data).expect("there is room");
        }
    });
    let mut answered = 0;
    for n in 0..100u64 {
        let data = Bytes::from(pattern(if n % 10 == 0 { 20_000 } else { 100 }, n));
        ours.send_datagram(data.clone()).unwrap();
        match tokio::time::timeout(noctule::DATAGRAM_LIFETIME * 2, ours.recv_datagram()).await {
            Ok(back) => answered += u32::from(back.unwrap() == data),
            Err(_) => continue,
        }
    }
    assert!(answered >= 90, "{answered} of 100 although one packet in 20 is lost each way");
    within(ours.close(0, "")).await;
    assert!(within(ours.recv_datagram()).await.is_err());
    within(echo).await.unwrap();
}

#[tokio::test]
async fn the_tag_of_datagrams_is_refused_for_other_flows() {
    let (_client, _server, ours, _theirs) = pair().await;
    let refused = ours.open_uni(FlowOptions { tag: (1 << 62) - 1, ..Default::default() }).unwrap_err();
    assert!(matches!(&refused, noctule::OpenError::Misuse(text) if text.contains("send_datagram")), "{refused}");
}

#[tokio::test]
async fn messages_are_a_sink_and_a_stream() {
    use futures_util::{SinkExt, StreamExt, TryStreamExt};
    let (_client, _server, ours, theirs) = pair().await;
    let mut sink = ours.open_messages(FlowOptions::default()).unwrap();
    let sending = async {
        let mut all = futures_util::stream::iter((0..5000u32).map(|n| Ok(Bytes::from(n.to_be_bytes().repeat(100)))));
        sink.send_all(&mut all).await.unwrap();
        sink.close().await.unwrap();
    };
    let receiving = async {
        let mut stream = theirs.accept_messages().await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!(first.data, 0u32.to_be_bytes().repeat(100));
        stream.try_collect::<Vec<_>>().await.unwrap()
    };
    let ((), rest) = within(async { tokio::join!(sending, receiving) }).await;
    assert_eq!(rest.len(), 4999);
    assert!(rest.iter().zip(1u32..).all(|(message, n)| message.data == n.to_be_bytes().repeat(100)));
}

#[tokio::test]
async fn a_stream_of_messages_ends_after_its_error() {
    use futures_util::StreamExt;
    let (_client, _server, ours, theirs) = pair().await;
    let sink = ours.open_messages(FlowOptions::default()).unwrap();
    sink.send("first".into(), MessageOptions::default()).await.unwrap();
    let mut stream = within(theirs.accept_messages()).await.unwrap();
    assert_eq!(within(stream.next()).await.unwrap().unwrap().data, "first");
    sink.reset(5);
    assert!(within(stream.next()).await.unwrap().is_err());
    assert!(within(stream.next()).await.is_none());
}

/// Users move handles between threads and share them: a new private field must not make that impossible.
#[test]
fn handles_are_send_sync_and_unpin() {
    fn holds<T: Send + Sync + Unpin + std::fmt::Debug>() {}
    holds::<noctule::Endpoint>();
    holds::<noctule::EndpointConfig>();
    holds::<noctule::Link>();
    holds::<noctule::LinkEvents>();
    holds::<noctule::MessageReceiver>();
    holds::<noctule::MessageSender>();
    holds::<RecvStream>();
    holds::<SendStream>();
    holds::<Session>();
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<noctule::BindError>();
    is_error::<noctule::ConnectError>();
    is_error::<noctule::FlowError>();
    is_error::<noctule::OpenError>();
    is_error::<noctule::ReadToEndError>();
    is_error::<noctule::SessionClosed>();
    is_error::<noctule::TrySendError>();
    fn is_send<T: Send>(_: &T) {}
    // Futures are spawned.
    let futures = |session: Session| async move {
        let (mut send, mut recv) = session.accept_bi().await?;
        let _ = (send.write_all(b"x").await, send.finish().await, recv.read_to_end(1).await, session.recv_datagram().await);
        session.events().next().await;
        session.close(0, "").await;
        Ok::<_, noctule::SessionClosed>(())
    };
    let check = |session: Session| is_send(&futures(session));
    let _: &dyn Fn(Session) = &check;
}
