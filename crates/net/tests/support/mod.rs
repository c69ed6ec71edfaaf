//! Endpoints on loopback, and a UDP middleman that loses datagrams.
#![allow(dead_code)]

use noctule::{Endpoint, EndpointConfig, SecretKey, Session};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::UdpSocket;

/// Nothing in these tests takes nearly as long; a hang fails instead of blocking the run.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("finished in time")
}

pub fn config(name: u8) -> EndpointConfig {
    let mut config = EndpointConfig::new(SecretKey::from_bytes([name; 32]));
    config.node.connect_timeout = Duration::from_secs(5);
    config.linger = Duration::from_secs(5);
    config
}

/// The public key of `config(name)`.
pub fn key_of(name: u8) -> noctule::PublicKey {
    config(name).identity.public()
}

pub fn bind(addr: &str, config: EndpointConfig) -> Endpoint {
    Endpoint::bind(addr.parse().unwrap(), config).unwrap()
}

/// Two endpoints and a session between them: client, server, the client's handle, the server's handle.
pub async fn pair() -> (Endpoint, Endpoint, Session, Session) {
    pair_on("127.0.0.1:0", config(1), config(2)).await
}

pub async fn pair_on(addr: &str, client: EndpointConfig, server: EndpointConfig) -> (Endpoint, Endpoint, Session, Session) {
    let (client, server) = (bind(addr, client), bind(addr, server));
    let (ours, theirs) = join(&client, server.local_addr(), &server).await;
    (client, server, ours, theirs)
}

/// A session from `client` to `server`, reached at `to`.
pub async fn join(client: &Endpoint, to: SocketAddr, server: &Endpoint) -> (Session, Session) {
    within(async {
        let connecting = async {
            let session = client.connect(to, None).await.expect("connected");
            // The far end learns of a session by its first flow.
            let mut hello = session.open_messages(Default::default()).expect("a flow");
            hello.send("hello".into(), Default::default()).await.expect("sent");
            hello.finish().await.expect("delivered");
            session
        };
        let accepting = async {
            let session = server.accept().await.expect("open");
            match session.accept_flow().await.expect("a flow") {
                noctule::IncomingFlow::Messages(mut flow) => {
                    assert_eq!(flow.recv().await.unwrap().unwrap().data, "hello");
                    assert_eq!(flow.recv().await.unwrap(), None);
                }
                other => panic!("unexpected {other:?}"),
            }
            session
        };
        tokio::join!(connecting, accepting)
    })
    .await
}

/// Bytes that look random and differ from position to position.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Passes datagrams on between one client and a server. Drops one in `lose_every` (0: none), and all of them while it is cut.
pub struct Middleman {
    pub addr: SocketAddr,
    pub forwarded: Arc<AtomicU64>,
    cut: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Middleman {
    pub async fn new(server: SocketAddr, lose_every: u64) -> Self {
        Self::over(UdpSocket::bind("127.0.0.1:0").await.unwrap(), server, lose_every).await
    }

    /// The same, in front of `front`.
    pub async fn over(front: UdpSocket, server: SocketAddr, lose_every: u64) -> Self {
        let back = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // As port forwarders do: a connected socket receives from the server only.
        back.connect(server).await.unwrap();
        for socket in [&front, &back] {
            let _ = socket2::SockRef::from(socket).set_recv_buffer_size(4 << 20);
        }
        let addr = front.local_addr().unwrap();
        let (forwarded, cut) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn({
            let (forwarded, cut) = (Arc::clone(&forwarded), Arc::clone(&cut));
            async move {
                let (mut client, mut n) = (None, 0u64);
                let (mut there, mut back_again) = (vec![0; 65_536], vec![0; 65_536]);
                loop {
                    let (is_forth, len) = tokio::select! {
                        Ok((len, from)) = front.recv_from(&mut there) => {
                            client = Some(from);
                            (true, len)
                        }
                        Ok((len, _)) = back.recv_from(&mut back_again) => (false, len),
                    };
                    // Chosen by a generator: with a fixed period the same kind of packet would be lost each time.
                    n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    if cut.load(Relaxed) || (lose_every > 0 && (n >> 33) % lose_every == 0) {
                        continue;
                    }
                    forwarded.fetch_add(1, Relaxed);
                    let _ = match (is_forth, client) {
                        (true, _) => back.send(&there[..len]).await,
                        (false, Some(client)) => front.send_to(&back_again[..len], client).await,
                        (false, None) => continue,
                    };
                }
            }
        });
        Self { addr, forwarded, cut, task }
    }

    /// From now on nothing passes.
    pub fn cut(&self) {
        self.cut.store(true, Relaxed);
    }

    /// It passes again.
    pub fn mend(&self) {
        self.cut.store(false, Relaxed);
    }
}

impl Drop for Middleman {
    fn drop(&mut self) {
        self.task.abort();
    }
}
