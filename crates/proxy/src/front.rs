//! One port for SOCKS 5, SOCKS 4 and 4a, and HTTP: the first byte tells them apart.

use crate::http;
use crate::mute::Mute;
use crate::near::Near;
use crate::relay::{relay, reset};
use crate::report::{Counts, End};
use crate::socks::{self, Bad, Command};
use crate::stream::Incoming;
use crate::target::Target;
use crate::wire::{Answer, Outcome, Transport};
use bytes::{Buf, Bytes, BytesMut};
use noctule::SendStream;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client that is told something may take to hear it.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Datagrams that wait.
const MOST_WAITING: usize = 64;

/// A client that is still to say what it wants.
struct Client {
    tcp: TcpStream,
    /// What it said, and nobody has read yet.
    buffer: BytesMut,
}

impl Client {
    /// Takes what `parse` finds at the front of what the client says; `None`: it left.
    async fn take<T, E>(&mut self, parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>) -> Option<Result<T, E>> {
        loop {
            match parse(&self.buffer) {
                Ok(Some((value, len))) => {
                    self.buffer.advance(len);
                    return Some(Ok(value));
                }
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            if self.tcp.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The last thing that is said, and the end.
    async fn leave(mut self, words: &[u8]) {
        let said = async {
            self.tcp.write_all(words).await?;
            self.tcp.shutdown().await?;
            // What it still says would turn the end into a reset, and hide the words.
            let mut rest = [0; 4096];
            while self.tcp.read(&mut rest).await? > 0 {}
            Ok::<_, std::io::Error>(())
        };
        let _ = timeout(LAST_WORD, said).await;
    }
}

/// How a client hears what became of its request.
#[derive(Clone, Copy)]
enum Tongue {
    Socks5,
    Socks4,
    Connect,
    /// The target itself answers.
    Plain,
}

impl Tongue {
    fn words(self, answer: &Answer) -> Vec<u8> {
        let stands = answer.outcome == Outcome::Connected;
        match self {
            Self::Socks5 => socks::reply(socks::code(answer.outcome), answer.bound.as_ref()),
            Self::Socks4 => socks::reply4(stands).to_vec(),
            Self::Connect if stands => http::ESTABLISHED.to_vec(),
            Self::Plain if stands => Vec::new(),
            Self::Connect | Self::Plain => http::refusal(answer),
        }
    }
}

/// Hears a client out, and does what it asks for.
pub(crate) async fn serve(near: Near, tcp: TcpStream, source: SocketAddr, mute: Arc<Mute>) {
    let mut client = Client { tcp, buffer: BytesMut::new() };
    let asked = {
        let place = mute.place(source.ip());
        tokio::select! {
            asked = timeout(PATIENCE, asked(&mut client)) => asked,
            () = place.gives_way() => return,
        }
    };
    let Ok(Some(asked)) = asked else { return };
    match asked {
        Asked::Connect(target, tongue) => connect(near, client, source, target, tongue, Vec::new(), u64::MAX).await,
        Asked::Plain { target, head, body } => connect(near, client, source, target, Tongue::Plain, head, body).await,
        Asked::Associate => associate(near, client, source).await,
        Asked::Nothing(words) => client.leave(&words).await,
    }
}

enum Asked {
    Connect(Target, Tongue),
    /// A plain request of HTTP: what the target is to hear first, and how many bytes follow.
    Plain {
        target: Target,
        head: Vec<u8>,
        body: u64,
    },
    Associate,
    /// And what is said to it.
    Nothing(Vec<u8>),
}

async fn asked(client: &mut Client) -> Option<Asked> {
    while client.buffer.is_empty() {
        if client.tcp.read_buf(&mut client.buffer).await.ok()? == 0 {
            return None;
        }
    }
    match client.buffer[0] {
        socks::V5 => {
            let offered = match client.take(socks::greeting).await? {
                Ok(offered) => offered,
                Err(_) => return None,
            };
            if !offered {
                return Some(Asked::Nothing(socks::method(false).to_vec()));
            }
            client.tcp.write_all(&socks::method(true)).await.ok()?;
            Some(match client.take(socks::request).await? {
                Ok(Command::Connect(target)) => Asked::Connect(target, Tongue::Socks5),
                Ok(Command::Associate) => Asked::Associate,
                Ok(Command::Other) => Asked::Nothing(socks::reply(socks::NOT_SUPPORTED, None)),
                Err(Bad::Address) => Asked::Nothing(socks::reply(socks::BAD_ADDRESS, None)),
                Err(Bad::Syntax) => Asked::Nothing(socks::reply(1, None)),
            })
        }
        socks::V4 => Some(match client.take(socks::request4).await? {
            Ok(Command::Connect(target)) => Asked::Connect(target, Tongue::Socks4),
            Ok(_) | Err(_) => Asked::Nothing(socks::reply4(false).to_vec()),
        }),
        first if first.is_ascii_alphabetic() => Some(match client.take(http::parse).await? {
            Ok(http::Request::Connect(target)) => Asked::Connect(target, Tongue::Connect),
            Ok(http::Request::Plain { target, head, body }) => Asked::Plain { target, head, body },
            Err(why) => Asked::Nothing(http::bad(why)),
        }),
        _ => None,
    }
}

async fn connect(near: Near, client: Client, source: SocketAddr, target: Target, tongue: Tongue, mut first: Vec<u8>, most: u64) {
    let (begun, counts) = (Instant::now(), Counts::default());
    // What the client says before it is answered travels with the request.
    let Some(most) = most.checked_sub(client.buffer.len() as u64) else {
        return client.leave(&http::bad("one request at a time, please: more follows the first")).await;
    };
    first.extend_from_slice(&client.buffer);
    counts.up(first.len());
    let opened = async {
        let (peer, send, mut incoming) = near.uplink.open(&near.request(&target, source), &first, near.class(&target)).await?;
        let answer = incoming.answer().await;
        match answer.outcome {
            Outcome::Connected => Ok((peer, send, incoming, answer)),
            _ => Err(answer),
        }
    };
    let (peer, end) = match opened.await {
        Ok((peer, send, incoming, answer)) => {
            (Some(peer), established(client, &tongue.words(&answer), send, incoming, most, &counts).await)
        }
        Err(answer) => {
            client.leave(&tongue.words(&answer)).await;
            (None, End::Refused(answer))
        }
    };
    near.report(peer, Transport::Tcp, source.to_string(), target.to_string(), begun, &counts, end);
}

async fn established(mut client: Client, words: &[u8], send: SendStream, incoming: Incoming, most: u64, counts: &Counts) -> End {
    if client.tcp.write_all(words).await.is_err() {
        reset(&client.tcp);
    }
    relay(client.tcp, send, incoming, most, false, counts).await
}

/// RFC 1928 §7: datagrams of the client's host, for as long as its connection stands.
async fn associate(near: Near, mut client: Client, source: SocketAddr) {
    let (begun, counts) = (Instant::now(), Counts::default());
    let prepared = async {
        let local = client.tcp.local_addr().map_err(|e| Answer::new(Outcome::Failed, e.to_string()))?;
        let socket = UdpSocket::bind((local.ip(), 0)).await.map_err(|e| Answer::new(Outcome::Failed, e.to_string()))?;
        let bound = socket.local_addr().map_err(|e| Answer::new(Outcome::Failed, e.to_string()))?;
        let mut association = near.associate(None).await?;
        association.accepted().await?;
        Ok::<_, Answer>((Arc::new(socket), bound, association))
    };
    let (socket, bound, association) = match prepared.await {
        Ok(prepared) => prepared,
        Err(answer) => {
            client.leave(&socks::reply(socks::code(answer.outcome), None)).await;
            near.report(None, Transport::Udp, source.to_string(), "any".into(), begun, &counts, End::Refused(answer));
            return;
        }
    };
    let bound = Target::from(bound);
    if client.tcp.write_all(&socks::reply(0, Some(&bound))).await.is_err() {
        return;
    }
    let (queue, mut waiting) = mpsc::channel(MOST_WAITING);
    let from: Mutex<Option<SocketAddr>> = Mutex::new(None);
    let lock = || from.lock().unwrap_or_else(PoisonError::into_inner);
    let reading = async {
        let mut buffer = vec![0; 65_535];
        loop {
            let Ok((len, sender)) = socket.recv_from(&mut buffer).await else { continue };
            // The first that comes from the client's host is the client's.
            if sender.ip().to_canonical() != source.ip() || *lock().get_or_insert(sender) != sender {
                continue;
            }
            if let Some((target, head)) = socks::datagram(&buffer[..len]) {
                let _ = queue.try_send((Some(target), Bytes::copy_from_slice(&buffer[head..len])));
            }
        }
    };
    // Before this the runtime takes it for one without room.
    let _ = socket.writable().await;
    let deliver = |source: Option<Target>, data: &[u8]| {
        let to = *lock();
        if let (Some(source), Some(to)) = (source, to) {
            // One for which there is no room is lost.
            let _ = socket.try_send_to(&socks::emit_datagram(&source, data), to);
        }
    };
    let leaving = async {
        let mut rest = [0; 256];
        while client.tcp.read(&mut rest).await.is_ok_and(|len| len > 0) {}
    };
    let end = tokio::select! {
        end = association.run(&mut waiting, near.options.udp_idle, &counts, deliver) => end,
        () = reading => End::Finished,
        () = leaving => End::Finished,
    };
    near.report(None, Transport::Udp, source.to_string(), "any".into(), begun, &counts, end);
}
