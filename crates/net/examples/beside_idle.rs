//! One bulk flow beside many flows and links that are open and idle: its rate, its CPU time per gigabit and what each idle one holds, over loopback.
//!
//! `cargo run --release -p noctule --example beside_idle -- --flows 10000 --links 1000 --seconds 2 --rounds 5`
//!
//! Two pairs of endpoints in one process, one with and one without the idle flows and links, take turns. CPU time is the process's, both ends; memory is what
//! the process holds resident (Linux), shared out over both ends of each.

mod support;

use noctule::{Endpoint, EndpointConfig, FlowOptions, IncomingFlow, MessageOptions, MessageReceiver, MessageSender, PublicKey, Session};
use std::time::{Duration, Instant};
use support::{cpu, median};

/// Handshakes at a time: what is without a cookie is answered a hundred times a second.
const AT_ONCE: usize = 16;

struct Options {
    flows: usize,
    links: usize,
    seconds: f64,
    rounds: usize,
}

fn options() -> Result<Options, String> {
    let mut o = Options { flows: 10_000, links: 1000, seconds: 2.0, rounds: 5 };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} needs a value"))?;
        let wrong = |e: &dyn std::fmt::Display| format!("{flag} {value}: {e}");
        match flag.as_str() {
            "--flows" => o.flows = value.parse().map_err(|e| wrong(&e))?,
            "--links" => o.links = value.parse().map_err(|e| wrong(&e))?,
            "--rounds" => o.rounds = value.parse().map_err(|e| wrong(&e))?,
            "--seconds" => o.seconds = value.parse().map_err(|e| wrong(&e))?,
            other => return Err(format!("unknown option {other}: there are --flows, --links, --seconds and --rounds")),
        }
    }
    Ok(o)
}

/// Room for all of them, at each end.
fn config(o: &Options) -> EndpointConfig {
    let mut config = EndpointConfig::ephemeral().expect("the system has randomness");
    let node = &mut config.node;
    // One host has an eighth of the places where any host may call.
    (node.max_links, node.max_links_per_key) = (16 * o.links + 64, 16 * o.links + 64);
    node.max_sessions = 8 * o.links + 512;
    (node.max_flows, node.max_link_flows) = (4 * o.flows + 64, 4 * o.flows + 64);
    node.node_memory = 64 << 30;
    config
}

/// What the process holds, in bytes.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0)
}

struct Pair {
    client: Endpoint,
    server: Endpoint,
    key: PublicKey,
    near: Session,
    far: Session,
}

impl Pair {
    async fn new(o: &Options) -> Self {
        let (ours, theirs) = (config(o), config(o));
        let key = theirs.identity.public();
        let at = "127.0.0.1:0".parse().expect("an address");
        let (client, server) = (Endpoint::bind(at, ours).expect("a socket"), Endpoint::bind(at, theirs).expect("a socket"));
        let (near, far) = session(&client, &server, key).await;
        Self { client, server, key, near, far }
    }

    /// One stream for so long: gigabits, and what they took.
    async fn bulk(&self, seconds: f64) -> (f64, Duration, Duration) {
        let (begun, before) = (Instant::now(), cpu());
        let sending = async {
            let mut stream = self.near.open_uni(FlowOptions::default()).expect("a flow");
            let block = vec![0x5a; 256 * 1024];
            while begun.elapsed().as_secs_f64() < seconds {
                stream.write_all(&block).await.expect("the stream goes on");
            }
            stream.finish().await.expect("delivered");
        };
        let far = self.far.clone();
        let reading = tokio::spawn(async move {
            let mut recv = far.accept_uni().await.expect("a stream");
            let (mut chunks, mut bytes) = (Vec::new(), 0);
            loop {
                match recv.read_chunks(&mut chunks, 1 << 20).await.expect("the stream goes on") {
                    0 => return bytes,
                    n => bytes += n,
                }
                chunks.clear();
            }
        });
        sending.await;
        let bytes = reading.await.expect("the reader ends");
        (bytes as f64 * 8e-9, begun.elapsed(), cpu() - before)
    }

    async fn idle_links(&self, count: usize) -> Vec<(Session, Session)> {
        let mut links = Vec::new();
        while links.len() < count {
            let some = (0..AT_ONCE.min(count - links.len())).map(|_| session(&self.client, &self.server, self.key));
            links.extend(futures_util::future::join_all(some).await);
        }
        links
    }

    /// Each has carried one message.
    async fn idle_flows(&self, count: usize) -> Vec<(MessageSender, MessageReceiver)> {
        let mut flows = Vec::new();
        for _ in 0..count {
            let send = self.near.open_messages(FlowOptions::default()).expect("a flow");
            send.send("one".into(), MessageOptions::default()).await.expect("sent");
            let IncomingFlow::Messages(mut recv) = self.far.accept_flow().await.expect("a flow") else { panic!("messages") };
            recv.recv().await.expect("received").expect("a message");
            flows.push((send, recv));
        }
        flows
    }
}

async fn session(client: &Endpoint, server: &Endpoint, key: PublicKey) -> (Session, Session) {
    let (near, far) = tokio::join!(client.connect(server.local_addr(), Some(key)), server.accept());
    (near.expect("connected"), far.expect("the endpoint is open"))
}

async fn run(o: Options) {
    let (alone, beside) = (Pair::new(&o).await, Pair::new(&o).await);
    // What is allocated once is there before memory is looked at.
    alone.bulk(0.3).await;
    beside.bulk(0.3).await;
    let each = |before: Option<f64>, count: usize| Some((resident()? - before?) / 1024.0 / 2.0 / count.max(1) as f64);
    let before = resident();
    let links = beside.idle_links(o.links).await;
    let of_link = each(before, o.links);
    let before = resident();
    let flows = beside.idle_flows(o.flows).await;
    let of_flow = each(before, o.flows);
    if let (Some(link), Some(flow)) = (of_link, of_flow) {
        println!("{:.1} KiB for each idle link with its session, {:.1} KiB for each idle flow, at each end", link, flow);
    }
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for round in 1..=o.rounds {
        let mut of = [(0.0, 0.0); 2];
        // Each is the first of a round in turn.
        for at in [round % 2, (round + 1) % 2] {
            let (gigabits, took, spent) = [&alone, &beside][at].bulk(o.seconds).await;
            of[at] = (gigabits / took.as_secs_f64(), spent.as_secs_f64() / gigabits);
        }
        let [alone, beside] = of;
        println!(
            "round {round}: alone {:.2} Gbit/s, {:.3} CPU s per Gbit; beside them {:.2} Gbit/s, {:.3} CPU s per Gbit",
            alone.0, alone.1, beside.0, beside.1
        );
        rates.push(beside.0 / alone.0);
        costs.push(beside.1 / alone.1);
    }
    println!(
        "beside {} idle flows and {} idle links: {:.2} of the rate, {:.2} of the CPU time per Gbit (medians of {} rounds)",
        flows.len(),
        links.len(),
        median(rates),
        median(costs),
        o.rounds
    );
}

fn main() -> Result<(), String> {
    let o = options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(run(o));
    Ok(())
}
