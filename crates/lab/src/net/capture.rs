//! Captures on namespaces: a packet socket at each end of each link, and what the two ends of noctule trace.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::chain::{Chain, LEFT, RIGHT};
use super::descriptor::owned;
use super::namespace::Namespace;
use super::rtnetlink::index_of;
use super::scratch::Scratch;
use super::{realtime, timestamp};
use crate::capture::bounded::Bounded;
use crate::capture::pcap::Pcap;
use crate::capture::{End, Folder, Kept, link_file};
use noctule_proto::trace::file::RECORD_SEPARATOR;

/// How often a thread without packets or events looks whether the run is over.
const POLL: Duration = Duration::from_millis(100);
/// A run that is ended from outside loses packets of so long at most.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// What may still come after the run: programs that end say goodbye.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Packets that the kernel holds while this machine is busy.
const BUFFER: usize = 32 << 20;
/// A trace event longer than this is none.
const LONGEST_EVENT: usize = 1 << 20;

/// A capture under way.
#[derive(Debug)]
pub(super) struct Capture {
    folder: Folder,
    over: Arc<AtomicBool>,
    taps: Vec<JoinHandle<io::Result<io::Result<Kept>>>>,
    traces: Mutex<Vec<JoinHandle<io::Result<Kept>>>>,
    fifos: Scratch,
}

impl Capture {
    /// Listens at both ends of every link of the chain.
    pub(super) fn start(chain: &Chain, folder: Folder) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut taps = Vec::new();
        for (link, hosts) in chain.hosts().windows(2).enumerate() {
            for (host, device, end) in [(&hosts[0], RIGHT, End::Left), (&hosts[1], LEFT, End::Right)] {
                taps.push(tap(host, device, link_file(link, end), &folder, &over)?);
            }
        }
        Ok(Self { folder, over, taps, traces: Mutex::default(), fifos: Scratch::new("noctule-lab-traces")? })
    }

    /// Where a program is to write its trace; it comes into a file of this name.
    pub(super) fn trace(&self, name: &str) -> io::Result<PathBuf> {
        let fifo = self.fifos.path().join(name);
        let path = CString::new(fifo.as_os_str().as_bytes())?;
        // SAFETY: the path is a live string that ends with a zero.
        if unsafe { libc::mkfifo(path.as_ptr(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Open for writing, too: there is then no end before the run has one, however often programs open and close it.
        let events = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&fifo)?;
        let out = Bounded::new(self.folder.create(name)?, self.folder.limit(), b"")?;
        let (folder, name, over) = (self.folder.clone(), name.to_owned(), Arc::clone(&self.over));
        let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            let mut out = out;
            read_events(events, &mut out, &over)?;
            out.finish(&name).map_err(|error| folder.failed(&name, &error))
        })?;
        self.traces.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(fifo)
    }

    /// Ends it and says what there is. All programs have ended.
    pub(super) fn finish(self) -> io::Result<()> {
        self.over.store(true, Ordering::Release);
        let mut kept = Vec::new();
        let traces = self.traces.into_inner().unwrap_or_else(PoisonError::into_inner);
        for tap in self.taps {
            kept.push(tap.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and_then(|kept| kept));
        }
        for trace in traces {
            kept.push(trace.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        // Those that could be written are told, whatever became of the others.
        let (whole, failed): (Vec<_>, Vec<_>) = kept.into_iter().partition(Result::is_ok);
        self.folder.tell(&whole.into_iter().flatten().collect::<Vec<_>>());
        failed.into_iter().try_for_each(|failed| failed.map(|_| ()))
    }
}

fn tap(
    host: &Namespace,
    device: &'static str,
    name: String,
    folder: &Folder,
    over: &Arc<AtomicBool>,
) -> io::Result<JoinHandle<io::Result<io::Result<Kept>>>> {
    let mut pcap = Pcap::new(folder.create(&name)?, folder.limit())?;
    let socket = host.enter(|| packet_socket(device))??;
    let (folder, over) = (folder.clone(), Arc::clone(over));
    host.spawn_thread("capture", move || {
        read_packets(&socket, &mut pcap, &over)?;
        let kept = pcap.finish(&name).map_err(|error| folder.failed(&name, &error))?;
        Ok(Kept { unseen: dropped(&socket)?, ..kept })
    })
}

/// A socket that sees what goes through a device in both directions, from the IP header on (packet(7), SOCK_DGRAM).
fn packet_socket(device: &str) -> io::Result<OwnedFd> {
    // SAFETY: a plain call that makes a descriptor. Of protocol 0 nothing is seen before it is bound.
    let socket = unsafe { owned(libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))? };
    let size = BUFFER as libc::c_int;
    // SAFETY: the option is an int that lives over the call. With the right to it a process gets more than the system's ceiling, else what that allows.
    let forced = unsafe {
        let length = std::mem::size_of_val(&size) as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const size).cast(), length)
    };
    let options = SockRef::from(&socket);
    if forced != 0 {
        options.set_recv_buffer_size(BUFFER)?;
    }
    options.set_read_timeout(Some(POLL))?;
    timestamp::enable(&socket)?;
    // SAFETY: an all-zero address is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as _;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index_of(device)? as _;
    // SAFETY: the address lives over the call, and its length is its own.
    let bound = unsafe {
        let length = std::mem::size_of_val(&address) as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    match bound {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read_packets(socket: &OwnedFd, pcap: &mut Pcap<BufWriter<File>>, over: &AtomicBool) -> io::Result<()> {
    let mut packet = vec![0u8; 1 << 16];
    let (mut last, mut flushed) = (None::<Instant>, Instant::now());
    pcap.flush();
    loop {
        match timestamp::receive(socket, &mut packet)? {
            // Anything else is chatter of the links below: veth pairs ask for neighbours.
            Some((length, nanos)) if length > 0 && matches!(packet[0] >> 4, 4 | 6) => pcap.record_packet(nanos, &packet[..length]),
            Some(_) => {}
            None if over.load(Ordering::Acquire) => return Ok(()),
            None => {}
        }
        if flushed.elapsed() > FLUSH_EVERY {
            pcap.flush();
            flushed = Instant::now();
        }
        if over.load(Ordering::Acquire) && last.get_or_insert_with(Instant::now).elapsed() > LAST_WORDS {
            return Ok(());
        }
    }
}

/// Packets for which the socket had no room (packet(7), PACKET_STATISTICS).
fn dropped(socket: &OwnedFd) -> io::Result<u64> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = std::mem::size_of_val(&stats) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a live structure.
    let read = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, (&raw mut stats).cast(), &raw mut length)
    };
    match read {
        0 => Ok(stats.tp_drops.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts whole events into the file: a program may end in the middle of one.
fn read_events(mut events: File, out: &mut Bounded<BufWriter<File>>, over: &AtomicBool) -> io::Result<()> {
    let (mut chunk, mut pending) = (vec![0u8; 1 << 16], Vec::new());
    loop {
        let is_over = over.load(Ordering::Acquire);
        match events.read(&mut chunk) {
            Ok(length) => {
                pending.extend_from_slice(&chunk[..length]);
                let whole = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                for event in pending[..whole].split_inclusive(|byte| *byte == b'\n') {
                    if event.first() == Some(&RECORD_SEPARATOR) {
                        out.put(&[event]);
                    }
                }
                pending.drain(..whole);
                if pending.len() > LONGEST_EVENT {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a trace has an event of more than 1 MiB"));
                }
            }
            // What was written before the end has been read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_over => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                out.flush();
                realtime::wait_readable(&[events.as_fd()], POLL.as_nanos() as u64)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn of_a_trace_whole_events_are_kept_up_to_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        crate::files::tests::fifo(&fifo);
        let open = || OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        let (events, mut program) = (open(), open());
        program.write_all(b"\x1e{\"a\":1}\nnoise\n\x1e{\"b\":2}\n\x1e{\"cut").unwrap();
        let folder = Folder::open(&dir.path().join("kept"), 1000).unwrap();
        let mut out = Bounded::new(folder.create("near.sqlog").unwrap(), folder.limit(), b"").unwrap();
        read_events(events, &mut out, &AtomicBool::new(true)).unwrap();
        assert_eq!(out.finish("near.sqlog").unwrap().records, 2);
        assert_eq!(std::fs::read(dir.path().join("kept/near.sqlog")).unwrap(), b"\x1e{\"a\":1}\n\x1e{\"b\":2}\n");
    }
}
