//! `noctule recv --one-way`: announcements for this side's key, then the packets of what they announce. Sends nothing.

use super::super::entry::{Entry, shown};
use super::super::hashing::Comparing;
use super::super::progress::{Progress, Reporter, Summary};
use super::super::recv::open_target;
use super::super::target::{Refused, Rules, Target};
use super::super::wire::Refusal;
use super::RECEIVER_MEMORY;
use super::cores;
use super::file::entry_of;
use super::place::{Piece, Place, Prepared, Writer, joined};
use super::recent::Recent;
use crate::cli::{ListenArgs, RecvArgs};
use crate::failure::Failure;
use crate::identity::{self, authorised::Access, authorised::Wanted};
use crate::invitation::Invitation;
use blake3::Hash;
use noctule::{PublicKey, SecretKey, SharedKey};
use noctule_proto::admission::{Admission, Host};
use noctule_proto::crypto::Addressed;
use noctule_proto::object::one_way::{Announcement, DataKey, OneWayError, is_announcement};
use noctule_proto::object::{BlockResult, Receiver, Root};
use noctule_proto::units::Time;
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

/// Objects that come side by side, at most.
const MAX_OBJECTS: usize = 4;
/// Bytes that the kernel should keep while this process is busy decoding.
const SOCKET_BUFFER: usize = 8 << 20;
/// Of these, of one key and of one host, as long as others want a place.
const MAX_OF_ONE: usize = MAX_OBJECTS / 2;
/// An object of which nothing has come for so long makes room for another.
const SILENCE: Duration = Duration::from_secs(30);
/// Announcements that are looked at in a second, of one host and of all: each costs two Diffie-Hellman operations. A sender repeats one every 200 ms, which costs nothing
/// after the first.
const OF_ONE_HOST: u32 = 20;
const OF_STRANGERS: u32 = 100;
/// Objects that are remembered as settled, and announcements whose fate is known.
const REMEMBERED: usize = 4096;

/// Receives until interrupted, or one object.
pub async fn run(args: RecvArgs) -> Result<(), Failure> {
    if args.stdout {
        return Err(Failure::Usage("--one-way receives blocks in no order: use --into, not --stdout".into()));
    }
    if args.identity.no_encryption {
        return Err(Failure::Usage("--one-way is always encrypted: there is nobody to agree on anything else".into()));
    }
    let (config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Access::load(&args.access, args.code, Wanted::OneWayFiles)?;
    let psk = args.identity.psk.as_deref().map(identity::shared_key).transpose()?;
    let rules = Rules::of(&args.keeping);
    let target = open_target(&args.into, rules)?;
    let socket = bind(&args.listen)?;
    let local = socket.local_addr().map_err(|e| Failure::system("a socket", e))?;
    greet(&args, local, config.identity.public(), is_ephemeral, &access);
    let reporter = Reporter::new(args.json, false).logging();
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| Failure::system("no randomness from the operating system", e))?;
    let start = tokio::time::Instant::now();
    let mut listener = Listener {
        addressed: Addressed::to(&config.identity.public()),
        admission: Admission::new(OF_ONE_HOST, OF_STRANGERS, seed),
        heard: Recent::new(REMEMBERED),
        secret: config.identity,
        psk,
        access,
        target,
        rules,
        reporter,
        objects: HashMap::new(),
        settled: Recent::new(REMEMBERED),
        is_strange_told: false,
        jobs: JoinSet::new(),
        width: cores::width(),
    };
    let mut buffer = vec![0; 65_536];
    loop {
        let settled = tokio::select! {
            got = socket.recv_from(&mut buffer) => match got {
                Ok((len, from)) => listener.on_datagram(Time::ZERO + start.elapsed(), from.ip(), &mut buffer[..len]).await,
                // An ICMP error about a datagram that another program sent from this port is no failure here.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => continue,
                Err(e) => return Err(Failure::system("receiving", e)),
            },
            Some(result) = listener.jobs.join_next(), if !listener.jobs.is_empty() => listener.on_decoded(result).await,
        };
        match settled {
            Some(Ok(())) if args.once => return Ok(()),
            Some(Err(failure)) => failure.print(args.json),
            Some(Ok(())) | None => {}
        }
    }
}

fn bind(listen: &ListenArgs) -> Result<UdpSocket, Failure> {
    let mut last = None;
    for address in listen.places()? {
        match bound(address) {
            Ok(socket) => return Ok(socket),
            Err(e) => last = Some((address, e)),
        }
    }
    let (address, e) = last.ok_or_else(|| Failure::System("no address to listen on".into()))?;
    Err(match e.kind() {
        kind @ ErrorKind::AddrInUse => Failure::port(kind, &format!("{address} is in use")),
        kind @ ErrorKind::PermissionDenied => Failure::port(kind, &format!("{address} is not permitted to this user")),
        kind => Failure::port(kind, &format!("cannot listen on {address}: {e}")),
    })
}

fn bound(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    match address.ip() {
        // Several receivers of one host may listen to one group.
        IpAddr::V4(group) if group.is_multicast() => {
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
        }
        IpAddr::V6(group) if group.is_multicast() => {
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.join_multicast_v6(&group, 0)?;
        }
        _ => {
            if address.is_ipv6() {
                // Both families by one socket, whatever the system's default.
                let _ = socket.set_only_v6(false);
            }
            socket.bind(&address.into())?;
        }
    }
    // As much as the system permits.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

/// Says what the sender has to type.
fn greet(args: &RecvArgs, local: SocketAddr, public: PublicKey, is_ephemeral: bool, access: &Access) {
    let invitation = Invitation::new(local, public, &args.identity, &args.via);
    if args.json {
        let event = json!({
            "event": "listening", "address": local.to_string(), "public_key": public.to_string(), "fingerprint": public.fingerprint(),
            "ephemeral": is_ephemeral, "one_way": true, "command": invitation.one_way()
        });
        say!("{event}");
        return;
    }
    tell!(
        "receiving one way into {} on {local}; on the other host, with a rate that the network carries:\n\n  {}\n\n{}{}",
        args.into.display(),
        invitation.one_way(),
        access.shown(),
        invitation.notes()
    );
}

struct Listener {
    secret: SecretKey,
    addressed: Addressed,
    admission: Admission,
    /// Announcements that were read: the same bytes come again and again.
    heard: Recent<[u8; 32]>,
    psk: Option<SharedKey>,
    access: Access,
    target: Target,
    rules: Rules,
    reporter: Reporter,
    objects: HashMap<Root, Incoming>,
    /// Objects that are there, or were refused: their packets go on coming.
    settled: Recent<Root>,
    is_strange_told: bool,
    /// Blocks that are being decoded, on as many threads as there are cores (P21).
    jobs: JoinSet<(Root, BlockResult)>,
    width: usize,
}

/// An object that comes.
struct Incoming {
    sender: PublicKey,
    host: Host,
    key: DataKey,
    entry: Entry,
    receiver: Receiver,
    pieces: mpsc::Sender<Piece>,
    thread: Writer,
    progress: Progress,
    heard: tokio::time::Instant,
}

impl Listener {
    /// `Some` when an object is there, or will never be.
    async fn on_datagram(&mut self, now: Time, from: IpAddr, datagram: &mut [u8]) -> Option<Result<(), Failure>> {
        if is_announcement(datagram) {
            return self.on_announcement(now, from.into(), datagram).await;
        }
        // Roots may begin alike, by chance or on purpose: the key decides. What does not open is spoiled by the attempt.
        let is_shared = self.objects.values().filter(|object| object.key.is_mine(datagram)).count() > 1;
        let mut opened = None;
        for (root, incoming) in &mut self.objects {
            if !incoming.key.is_mine(datagram) {
                continue;
            }
            let mut copy = if is_shared { datagram.to_vec() } else { Vec::new() };
            let sealed = if is_shared { &mut copy[..] } else { &mut *datagram };
            if let Ok(packet) = incoming.key.open(sealed) {
                incoming.heard = tokio::time::Instant::now();
                incoming.receiver.offer(packet);
                opened = Some(*root);
                break;
            }
        }
        let root = opened?;
        self.start_jobs();
        self.after(root).await
    }

    async fn on_decoded(&mut self, result: Result<(Root, BlockResult), JoinError>) -> Option<Result<(), Failure>> {
        let (root, result) = match result {
            Ok(result) => result,
            Err(e) => return Some(Err(Failure::system("a thread", e))),
        };
        // The object may have made room for another meanwhile.
        self.objects.get_mut(&root)?.receiver.on_result(result);
        self.start_jobs();
        self.after(root).await
    }

    fn start_jobs(&mut self) {
        for (root, incoming) in &mut self.objects {
            while self.jobs.len() < self.width
                && let Some(job) = incoming.receiver.poll_job()
            {
                let root = *root;
                self.jobs.spawn_blocking(move || (root, job.run()));
            }
        }
    }

    /// Hands over what has become complete; `Some` if that was everything.
    async fn after(&mut self, root: Root) -> Option<Result<(), Failure>> {
        let incoming = self.objects.get_mut(&root)?;
        while let Some((block, content)) = incoming.receiver.poll_block() {
            // A writer that has ended says why below.
            let _ = incoming.pieces.send(Piece::Block(block, content)).await;
        }
        let layout = *incoming.receiver.layout();
        let there = (u64::from(incoming.receiver.blocks_done()) * layout.block_bytes() as u64).min(layout.size());
        // Blocks are complete one after the other at the end; packets that say something new come all the time.
        let said = incoming.receiver.stats().new_packets * layout.packet_len() as u64;
        incoming.progress.set(there.max(said.min(layout.size())), 0);
        if incoming.receiver.is_complete() || incoming.thread.is_finished() {
            let incoming = self.objects.remove(&root)?;
            self.settled.insert(root);
            return Some(finish(incoming, root).await);
        }
        None
    }

    async fn on_announcement(&mut self, now: Time, host: Host, datagram: &[u8]) -> Option<Result<(), Failure>> {
        let is_addressed = self.addressed.check(datagram).is_some();
        let mark = *blake3::hash(datagram).as_bytes();
        if is_addressed && (self.heard.contains(&mark) || !self.admission.admits(now, host, false)) {
            return None;
        }
        let (sender, announcement) =
            match Announcement::open(datagram, &self.addressed, &self.secret, self.psk.as_ref().map(SharedKey::as_bytes)) {
                Ok(opened) => opened,
                Err(OneWayError::Version(version)) if !self.is_strange_told => {
                    self.is_strange_told = true;
                    self.reporter.say(&format!("noctule: passed over: {}", OneWayError::Version(version)));
                    return None;
                }
                // An announcement for another key, or noise.
                Err(_) => return None,
            };
        let root = announcement.root;
        if self.settled.contains(&root) {
            self.heard.insert(mark);
            return None;
        }
        if self.objects.contains_key(&root) {
            return None;
        }
        let Some(grant) = self.access.grant(&sender) else {
            self.heard.insert(mark);
            return None;
        };
        let name = entry_of(&announcement.about);
        let begun = match name {
            _ if !grant.may_write => {
                Err(Refused { refusal: Refusal::NotAllowed, path: Vec::new(), message: "its key may not write here".into() })
            }
            None => Err(Refused { refusal: Refusal::Protocol, path: Vec::new(), message: "what was announced is no file".into() }),
            Some(entry) => self.make_room(sender, host).and_then(|()| {
                let rules = Rules { overwrite: self.rules.overwrite || grant.may_overwrite, ..self.rules };
                let below = grant.directory.as_deref();
                let target = self.target.below(below, rules).map_err(|e| Refused::from_io(entry.as_path(), &e))?;
                self.begin(&announcement, entry, target, (sender, host))
            }),
        };
        match begun {
            // An empty file that is there already.
            Ok(None) => {
                self.settled.insert(root);
                Some(Ok(()))
            }
            Ok(Some(incoming)) if incoming.receiver.is_complete() => {
                self.settled.insert(root);
                Some(finish(incoming, root).await)
            }
            Ok(Some(incoming)) => {
                self.objects.insert(root, incoming);
                None
            }
            Err(refused) if refused.refusal == Refusal::Busy => None,
            Err(refused) => {
                self.settled.insert(root);
                Some(Err(Failure::refused(&refused)))
            }
        }
    }

    /// Makes room for an object of this key and host. When all places are taken, a silent object is dropped, or one of a key or host that has more than its share.
    fn make_room(&mut self, sender: PublicKey, host: Host) -> Result<(), Refused> {
        let busy = || Err(Refused { refusal: Refusal::Busy, path: Vec::new(), message: "as many objects come as can be held".into() });
        if self.objects.len() < MAX_OBJECTS {
            return Ok(());
        }
        let held: Vec<Held> =
            self.objects.iter().map(|(root, o)| Held { root: *root, sender: o.sender, host: o.host, silent: o.heard.elapsed() }).collect();
        match makes_room(&held, sender, host) {
            Some(root) => {
                self.objects.remove(&root);
                Ok(())
            }
            None => busy(),
        }
    }

    fn begin(
        &self,
        announcement: &Announcement,
        entry: Entry,
        target: Target,
        (sender, host): (PublicKey, Host),
    ) -> Result<Option<Incoming>, Refused> {
        let wrong = |text: String| Refused { refusal: Refusal::Protocol, path: entry.path.clone(), message: text };
        let key = announcement.data_key().map_err(|e| wrong(e.to_string()))?;
        let receiver = Receiver::new(announcement.layout, &announcement.about, announcement.root, RECEIVER_MEMORY);
        let mut receiver = receiver.map_err(|e| wrong(e.to_string()))?;
        let Prepared::Place(place) =
            Place::prepare(target, entry.clone(), sender, &announcement.root, &mut receiver, &Comparing::default())?
        else {
            return Ok(None);
        };
        let (pieces, thread) = place.write()?;
        let progress = self.reporter.start("receiving one way", &sender.to_string(), 1, announcement.layout.size());
        Ok(Some(Incoming { sender, host, key, entry, receiver, pieces, thread, progress, heard: tokio::time::Instant::now() }))
    }
}

/// An object that has a place.
struct Held {
    root: Root,
    sender: PublicKey,
    host: Host,
    silent: Duration,
}

/// Which object leaves its place to one of this key and host, if any.
fn makes_room(held: &[Held], sender: PublicKey, host: Host) -> Option<Root> {
    let silent = held.iter().filter(|o| o.silent > SILENCE);
    // A key or host that has its share already displaces no other.
    let has_share = held.iter().filter(|o| o.sender == sender || o.host == host).count() >= MAX_OF_ONE;
    let has_more = |o: &&Held| {
        let of_key = held.iter().filter(|other| other.sender == o.sender).count();
        let of_host = held.iter().filter(|other| other.host == o.host).count();
        of_key.max(of_host) > MAX_OF_ONE
    };
    let longest = |objects: &mut dyn Iterator<Item = &Held>| objects.max_by_key(|o| o.silent).map(|o| o.root);
    longest(&mut silent.into_iter()).or_else(|| if has_share { None } else { longest(&mut held.iter().filter(has_more)) })
}

async fn finish(incoming: Incoming, root: Root) -> Result<(), Failure> {
    let Incoming { entry, receiver, pieces, thread, mut progress, .. } = incoming;
    let _ = pieces.send(Piece::End).await;
    let name = entry.clone();
    let placed = tokio::task::spawn_blocking(move || joined(thread, &name)).await.map_err(|e| Failure::system("a thread", e))?;
    if let Err(refused) = placed {
        progress.clear();
        return Err(Failure::refused(&refused));
    }
    let (digest, size) = (Hash::from_bytes(root.0), receiver.layout().size());
    let stats = receiver.stats();
    if stats.spoiled_blocks > 0 {
        tell!(
            "noctule: {}: {} blocks came wrong, from a sender that has the key, and came again",
            shown(&entry.path),
            stats.spoiled_blocks
        );
    }
    progress.set(size, 0);
    progress.file(&entry, digest);
    progress.done(&Summary { files: 1, bytes: size, same: 0, resumed: 0, newer: 0, deleted: 0, digest });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(root: u8, sender: u8, host: u8, silent: u64) -> Held {
        let sender = PublicKey([sender; 32]);
        Held { root: Root([root; 32]), sender, host: at(host), silent: Duration::from_secs(silent) }
    }

    fn at(host: u8) -> Host {
        IpAddr::from([192, 0, 2, host]).into()
    }

    #[test]
    fn one_key_or_host_does_not_keep_all_places() {
        let of = |held: &[Held], sender: u8, host: u8| makes_room(held, PublicKey([sender; 32]), at(host)).map(|root| root.0[0]);
        let one_host = [object(1, 1, 1, 0), object(2, 2, 1, 3), object(3, 3, 1, 1), object(4, 4, 4, 9)];
        assert_eq!(of(&one_host, 9, 9), Some(2), "a host with three places gives way, with what was silent for longest");
        assert_eq!(of(&one_host, 9, 1), None, "not to itself");
        let one_key = [object(1, 1, 1, 0), object(2, 1, 2, 3), object(3, 1, 3, 1), object(4, 4, 4, 9)];
        assert_eq!((of(&one_key, 9, 9), of(&one_key, 1, 9)), (Some(2), None));
        let fair = [object(1, 1, 1, 0), object(2, 1, 1, 3), object(3, 3, 3, 1), object(4, 3, 3, 9)];
        assert_eq!(of(&fair, 9, 9), None);
        let silent = [object(1, 1, 1, 0), object(2, 1, 1, 3), object(3, 3, 3, 1), object(4, 3, 3, 31)];
        assert_eq!(of(&silent, 1, 1), Some(4));
    }
}
