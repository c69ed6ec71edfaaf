//! Measures one flow between two endpoints of this process over loopback: rate, CPU per gigabit, packets per system call.
//!
//! `cargo run --release -p noctule --example loopback -- --seconds 5`
//!
//! Options: `--seconds N` (5), `--messages BYTES` (messages of that size instead of a stream), `--cc model|cubic|reno|vegas|bbr|gcc|none` (model), `--v6`,
//! `--plaintext`, `--datagram BYTES` (1472), `--multi` (one runtime of two workers for both ends instead of one thread for each end),
//! `--raw` (no protocol: what the kernel alone does with trains of this size). For a profile: `perf record -g target/release/examples/loopback`.

mod support;

use noctule::{Bytes, CongestionControl, Endpoint, EndpointConfig, FlowOptions, IncomingFlow, MessageOptions, Session};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::cpu_of;

#[derive(Clone)]
struct Options {
    seconds: f64,
    messages: Option<usize>,
    cc: CongestionControl,
    is_v6: bool,
    plaintext: bool,
    datagram: u16,
    is_multi: bool,
    is_raw: bool,
}

fn options() -> Result<Options, String> {
    let mut o = Options {
        seconds: 5.0,
        messages: None,
        cc: CongestionControl::Model,
        is_v6: false,
        plaintext: false,
        datagram: 1472,
        is_multi: false,
        is_raw: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--seconds" => o.seconds = value()?.parse().map_err(|e| format!("--seconds: {e}"))?,
            "--messages" => o.messages = Some(value()?.parse().map_err(|e| format!("--messages: {e}"))?),
            "--datagram" => o.datagram = value()?.parse().map_err(|e| format!("--datagram: {e}"))?,
            "--cc" => {
                let name = value()?;
                o.cc = CongestionControl::from_name(&name)
                    .ok_or_else(|| format!("--cc: {name} is not one of {}", CongestionControl::names()))?;
            }
            "--v6" => o.is_v6 = true,
            "--plaintext" => o.plaintext = true,
            "--multi" => o.is_multi = true,
            "--raw" => o.is_raw = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(o)
}

fn config(o: &Options) -> EndpointConfig {
    let mut config = EndpointConfig::ephemeral().expect("the system has randomness");
    config.node.congestion = o.cc;
    config.node.max_datagram = o.datagram;
    config.node.plaintext = o.plaintext;
    config
}

async fn receive(server: &Endpoint) -> u64 {
    let session = server.accept().await.expect("the endpoint is open");
    let mut bytes = 0;
    match session.accept_flow().await.expect("the session is open") {
        IncomingFlow::Stream { mut recv, .. } => {
            let mut chunks = Vec::new();
            loop {
                match recv.read_chunks(&mut chunks, 1 << 20).await.expect("the stream goes on") {
                    0 => break,
                    n => bytes += n as u64,
                }
                chunks.clear();
            }
        }
        IncomingFlow::Messages(mut recv) => {
            while let Some(message) = recv.recv().await.expect("the flow goes on") {
                bytes += message.data.len() as u64;
            }
        }
        other => panic!("unexpected {other:?}"),
    }
    // The sender closes once it knows that everything is here.
    session.closed().await;
    bytes
}

async fn send(session: &Session, o: &Options) {
    let end = Instant::now() + Duration::from_secs_f64(o.seconds);
    match o.messages {
        None => {
            let mut stream = session.open_uni(FlowOptions::default()).expect("a flow");
            let block = vec![0x5a; 256 * 1024];
            while Instant::now() < end {
                stream.write_all(&block).await.expect("the stream goes on");
            }
            stream.finish().await.expect("delivered");
        }
        Some(size) => {
            let mut flow = session.open_messages(FlowOptions::default()).expect("a flow");
            let message = Bytes::from(vec![0x5a; size]);
            let mut n = 0u64;
            while !n.is_multiple_of(64) || Instant::now() < end {
                flow.send(message.clone(), MessageOptions::default()).await.expect("the flow goes on");
                n += 1;
            }
            flow.finish().await.expect("delivered");
        }
    }
}

async fn run_sender(to: SocketAddr, o: &Options) {
    let bind: SocketAddr = if o.is_v6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().expect("an address");
    let client = Endpoint::bind(bind, config(o)).expect("a socket");
    let session = client.connect(to, None).await.expect("connected");
    send(&session, o).await;
    let path = session.stats().link.paths.first().cloned();
    let outcome = session.close(0, "").await;
    let s = client.stats();
    println!(
        "sender: {} datagrams in {} trains ({:.1} each), buffer full {} times, errors {}, socket buffers {:?}",
        s.sent_datagrams,
        s.sent_trains,
        s.sent_datagrams as f64 / s.sent_trains.max(1) as f64,
        s.send_blocked,
        s.send_errors,
        s.buffers,
    );
    if let Some(p) = path {
        println!(
            "path: rtt {:?} (min {:?}), loss {:?}, lost {}, spurious {}, cwnd {}, pacing {:?}, {}",
            p.smoothed_rtt, p.min_rtt, p.loss, p.lost_packets, p.spurious_losses, p.control.cwnd, p.control.pacing_rate, p.control.state
        );
    }
    println!("outcome: {:?}", outcome);
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn main() -> Result<(), String> {
    let o = options()?;
    if o.is_raw {
        raw(&o);
        return Ok(());
    }
    let bind: SocketAddr = if o.is_v6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().expect("an address");
    let started = Instant::now();
    let bytes = if o.is_multi {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = Endpoint::bind(bind, config(&o)).expect("a socket");
            let to = server.local_addr();
            let receiver = tokio::spawn(async move { receive(&server).await });
            let sender = tokio::spawn({
                let o = o.clone();
                async move { run_sender(to, &o).await }
            });
            sender.await.expect("the sender ends");
            receiver.await.expect("the receiver ends")
        })
    } else {
        let (tell, told) = std::sync::mpsc::channel();
        let receiver = std::thread::spawn({
            let o = o.clone();
            move || {
                current_thread().block_on(async move {
                    let server = Endpoint::bind(bind, config(&o)).expect("a socket");
                    tell.send(server.local_addr()).expect("the main thread listens");
                    let bytes = receive(&server).await;
                    report_thread("receiver");
                    bytes
                })
            }
        });
        let to = told.recv().expect("the receiver tells its address");
        let sender = std::thread::spawn({
            let o = o.clone();
            move || {
                current_thread().block_on(run_sender(to, &o));
                report_thread("sender");
            }
        });
        sender.join().expect("the sender ends");
        receiver.join().expect("the receiver ends")
    };
    report(bytes, started.elapsed());
    Ok(())
}

fn report_thread(name: &str) {
    if cfg!(target_os = "linux") {
        let (user, system) = cpu_of(libc::RUSAGE_THREAD);
        println!("{name} thread: {:.2} s user, {:.2} s system", user.as_secs_f64(), system.as_secs_f64());
    }
}

fn report(bytes: u64, elapsed: Duration) {
    let (user, system) = cpu_of(libc::RUSAGE_SELF);
    let gigabits = bytes as f64 * 8e-9;
    println!(
        "{:.3} Gbit/s ({:.0} MB in {:.2} s), CPU {:.2} s user + {:.2} s system = {:.3} s per Gbit for both ends",
        gigabits / elapsed.as_secs_f64(),
        bytes as f64 * 1e-6,
        elapsed.as_secs_f64(),
        user.as_secs_f64(),
        system.as_secs_f64(),
        (user + system).as_secs_f64() / gigabits
    );
}

/// Measures the kernel alone: trains of full datagrams between two threads, unpaced. What the receiver's buffer cannot hold is lost.
fn raw(o: &Options) {
    use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
    use std::io::IoSliceMut;
    let bind: SocketAddr = if o.is_v6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().expect("an address");
    let open = || {
        let socket = std::net::UdpSocket::bind(bind).expect("a socket");
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).expect("its state");
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), 8 << 20);
        socket.set_nonblocking(false).expect("blocking");
        (socket, state)
    };
    let (to, to_state) = open();
    let (from, from_state) = open();
    let destination = to.local_addr().expect("an address");
    to.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let started = Instant::now();
    let receiver = std::thread::spawn(move || {
        let (mut buf, mut meta, mut bytes) = (vec![0; 1 << 16], [RecvMeta::default()], 0u64);
        while to_state.recv(UdpSockRef::from(&to), &mut [IoSliceMut::new(&mut buf)], &mut meta).is_ok() {
            bytes += meta[0].len as u64;
        }
        bytes
    });
    let size = usize::from(o.datagram);
    let contents = vec![0x5a; size * from_state.max_gso_segments().min(65_000 / size).max(1)];
    let transmit = Transmit { destination, ecn: None, contents: &contents, segment_size: Some(size), src_ip: None };
    let mut sent = 0u64;
    while started.elapsed().as_secs_f64() < o.seconds {
        if from_state.try_send(UdpSockRef::from(&from), &transmit).is_ok() {
            sent += contents.len() as u64;
        }
    }
    let elapsed = started.elapsed();
    let bytes = receiver.join().expect("the receiver ends");
    println!("sent {:.3} Gbit/s", sent as f64 * 8e-9 / elapsed.as_secs_f64());
    report(bytes, elapsed);
}
