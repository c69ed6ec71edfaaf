//! `noctule send --mode brctp --one-way`: datagrams at a given rate, to any host that listens; nothing ever comes back.

use super::super::hashing::Comparing;
use super::super::progress::{Reporter, Summary};
use super::cores::InOrder;
use super::file::ObjectFile;
use crate::address::host_port;
use crate::cli::SendArgs;
use crate::failure::Failure;
use crate::identity;
use blake3::Hash;
use noctule::{Bandwidth, PublicKey, SharedKey};
use noctule_proto::object::one_way::{Announcement, DataKey, OneWayError};
use noctule_proto::object::{Carousel, Next, PacketJob, Plan};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// Between two announcements to each receiver: how long one that joins waits.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(200);
/// Announcements before the first packet, so that few lose its beginning, and after the last.
const GREETINGS: u32 = 5;
const GREETING_GAP: Duration = Duration::from_millis(20);
/// Packets that are made by one job.
const RUN: usize = 64;
/// What a pause of this process may be caught up with at once.
const CATCH_UP: Duration = Duration::from_millis(3);
/// Expected loss at least, in permille: repair packets cover the 150 packets on average that go with it.
const LOW_LOSS: u16 = 20;

/// Sends until everything that was asked for has gone out, or until interrupted.
pub async fn run(args: SendArgs) -> Result<(), Failure> {
    if args.peer.code.is_some() {
        return Err(Failure::Usage(
            "with --one-way nothing comes back, so no code can be proven: name the receivers with --to KEY, and let them --allow this side's key (noctule keygen --fingerprint shows it)".into(),
        ));
    }
    let rate = args
        .rate
        .ok_or_else(|| Failure::Usage("--one-way needs --rate: nothing comes back that could tell how much the network carries".into()))?;
    if args.overhead.is_none() && !args.carousel {
        return Err(Failure::Usage("--one-way never hears that everything arrived: say --overhead 30% to end after so much more than the file, or --carousel to go on until interrupted".into()));
    }
    let receivers: Vec<PublicKey> = args.peer.peer_key.iter().chain(&args.to).copied().collect();
    if receivers.is_empty() {
        return Err(Failure::Usage(
            "--one-way needs the key of each receiver (--to KEY, which `noctule recv --one-way` prints): nobody can be asked for it".into(),
        ));
    }
    if args.identity.no_encryption {
        return Err(Failure::Usage("--one-way is always encrypted: there is nobody to agree on anything else".into()));
    }
    let (host, names) = args.words.split_last().ok_or_else(|| Failure::Usage("name a file and a host".into()))?;
    let host = host.to_str().ok_or_else(|| Failure::Usage(format!("{host:?} is no host: it is the last argument")))?.to_owned();
    let names = names.to_vec();
    let file = tokio::task::spawn_blocking(move || ObjectFile::open(&names, LOW_LOSS, &Comparing::default())).await;
    let file = Arc::new(file.map_err(|e| Failure::system("reading", e))??);
    let (config, is_ephemeral) = identity::endpoint_config(args.identity.key.as_deref())?;
    let psk = args.identity.psk.as_deref().map(identity::shared_key).transpose()?;
    if is_ephemeral && !args.json {
        tell!(
            "noctule: this side's key is for this run only: only receivers that run with --anyone take it; noctule keygen makes a lasting one"
        );
    }
    let named = host_port(&host, args.port).map_err(Failure::Usage)?;
    let found = noctule::lookup_address(&named).await.map_err(|e| Failure::Resolve(e.to_string()))?;
    let address = found.into_iter().next().ok_or_else(|| Failure::Resolve(format!("{host} has no address")))?;
    let announcement = Announcement { key: random()?, root: file.root, layout: file.layout, about: file.about.clone() };
    let mut announcements = Vec::new();
    for receiver in &receivers {
        let sealed = announcement.seal(&config.identity, receiver, psk.as_ref().map(SharedKey::as_bytes), random()?);
        announcements.push(sealed.map_err(|e| Failure::Usage(format!("an announcement for {receiver} cannot be made: {e}")))?);
    }
    let data_key = Arc::new(announcement.data_key().map_err(|e| Failure::system("keys", e))?);
    let out = Outlet::open(address, rate.0).await?;
    Broadcast { args: &args, file, announcements, data_key, out }.run().await
}

fn random() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| Failure::system("no randomness from the operating system", e))?;
    Ok(bytes)
}

struct Broadcast<'a> {
    args: &'a SendArgs,
    file: Arc<ObjectFile>,
    announcements: Vec<Vec<u8>>,
    data_key: Arc<DataKey>,
    out: Outlet,
}

impl Broadcast<'_> {
    async fn run(mut self) -> Result<(), Failure> {
        let plan = self.args.overhead.map_or(Plan::Endless, |share| Plan::Once { overhead: share.permille() });
        let mut carousel = Carousel::new(self.file.layout, self.file.tree.clone(), plan);
        let size = self.file.layout.size();
        // Rounds without end are shown without a share of the whole.
        let (total, most) = match self.args.overhead {
            Some(share) => (size, size.saturating_add(size.saturating_mul(share.permille().into()) / 1000)),
            None => (0, u64::MAX),
        };
        let to = format!("{} ({} receivers)", self.out.address, self.announcements.len());
        let mut progress = Reporter::new(self.args.json, false).start("sending one way", &to, 1, total);
        self.greet().await?;
        let (mut number, mut announced) = (0u64, Instant::now());
        let (mut runs, mut is_over) = (InOrder::new(), false);
        loop {
            // What comes next is coded and sealed while what was before leaves.
            while !is_over && runs.has_room() {
                let (run, then) = next_run(&mut carousel);
                if !run.is_empty() {
                    let key = Arc::clone(&self.data_key);
                    runs.push(move || make(&run, &key));
                }
                match then {
                    Then::Load => self.load(&mut carousel).await?,
                    Then::End => is_over = true,
                    Then::More => {}
                }
            }
            let Some(datagrams) = runs.next().await else { break };
            for datagram in datagrams?.map_err(|e| Failure::system("sealing", e))? {
                if announced.elapsed() >= ANNOUNCE_EVERY {
                    announced = Instant::now();
                    self.announce().await?;
                }
                number += 1;
                self.out.send(&datagram).await?;
                let sent = (number * self.file.layout.packet_len() as u64).min(most);
                let shown = if total == 0 { sent } else { (u128::from(sent) * u128::from(size) / u128::from(most.max(1))) as u64 };
                progress.set(shown, 0);
            }
        }
        self.greet().await?;
        let digest = Hash::from_bytes(self.file.root.0);
        progress.file(&self.file.entry, digest);
        progress.sent(&Summary { files: 1, bytes: size, same: 0, resumed: 0, newer: 0, deleted: 0, digest }, number);
        Ok(())
    }

    /// Blocks that come next, side by side.
    async fn load(&self, carousel: &mut Carousel) -> Result<(), Failure> {
        let mut blocks = InOrder::new();
        let mut wanted = carousel.wanted().collect::<Vec<_>>().into_iter();
        loop {
            while blocks.has_room()
                && let Some(block) = wanted.next()
            {
                let file = Arc::clone(&self.file);
                blocks.push(move || {
                    file.block(block).map(|mut source| {
                        source.prepare();
                        source
                    })
                });
            }
            match blocks.next().await {
                Some(source) => carousel.add(source??),
                None => return Ok(()),
            }
        }
    }

    async fn greet(&mut self) -> Result<(), Failure> {
        for _ in 0..GREETINGS {
            self.announce().await?;
            tokio::time::sleep(GREETING_GAP).await;
        }
        Ok(())
    }

    async fn announce(&mut self) -> Result<(), Failure> {
        for announcement in &self.announcements {
            self.out.send(announcement).await?;
        }
        Ok(())
    }
}

/// Why a run of packets ended.
enum Then {
    /// It is long enough.
    More,
    /// Blocks have to be loaded.
    Load,
    /// Nothing follows.
    End,
}

/// The next packets, as many as are worth a thread.
fn next_run(carousel: &mut Carousel) -> (Vec<PacketJob>, Then) {
    let mut run = Vec::with_capacity(RUN);
    while run.len() < RUN {
        match carousel.poll_job() {
            Next::Packet(job) => run.push(job),
            Next::Load(_) => return (run, Then::Load),
            Next::End => return (run, Then::End),
        }
    }
    (run, Then::More)
}

/// Makes and seals them.
fn make(run: &[PacketJob], key: &DataKey) -> Result<Vec<Vec<u8>>, OneWayError> {
    let seal = |job: &PacketJob| {
        let mut datagram = Vec::new();
        key.begin(job.id(), &mut datagram);
        job.write(&mut datagram);
        key.finish(&mut datagram)?;
        Ok(datagram)
    };
    run.iter().map(seal).collect()
}

/// A socket that keeps to a rate.
struct Outlet {
    socket: UdpSocket,
    address: SocketAddr,
    rate: Bandwidth,
    free_at: Instant,
}

impl Outlet {
    async fn open(address: SocketAddr, rate: Bandwidth) -> Result<Self, Failure> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).await.map_err(|e| Failure::system("a socket", e))?;
        Ok(Self { socket, address, rate, free_at: Instant::now() })
    }

    async fn send(&mut self, datagram: &[u8]) -> Result<(), Failure> {
        let now = Instant::now();
        self.free_at = self.free_at.max(now.checked_sub(CATCH_UP).unwrap_or(now));
        if self.free_at > now {
            tokio::time::sleep_until(self.free_at).await;
        }
        self.free_at += self.rate.time_for(datagram.len() as u64 + u64::from(noctule::headers(self.address)));
        match self.socket.send_to(datagram, self.address).await {
            Ok(_) => Ok(()),
            // Nobody listens yet; or the device's queue is full, which is loss like any other.
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused || e.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(e) => Err(Failure::System(format!(
                "sending to {}: {e}; check the address, the route, and the size of packets that it takes",
                self.address
            ))),
        }
    }
}
