//! The task that owns an endpoint's socket: datagrams in, the node, datagrams out, sleep until the node's next deadline.
//!
//! One turn: (1) send what the socket refused before; (2) receive one batch; (3) under the lock: hand it to the node, let due deadlines
//! pass, collect trains to send, dispatch events; (4) send them without the lock. Receiving and sending alternate in bounded portions, so
//! that neither starves the other, and after [`TURNS`] turns the other tasks of the thread have their turn. Buffers live as long as the
//! driver: nothing is allocated per packet.

use crate::endpoint::Counters;
use crate::route::{Route, is_of_this_host};
use crate::shared::Shared;
use crate::socket::{RECV_BUFFER_LEN, RECV_BUFFERS, Socket, is_lone};
use crate::sockets::Sockets;
use crate::timer::Timer;
use crate::trace::TraceLog;
use noctule_proto::error::{CloseReason, Code, Layer};
use noctule_proto::ids::LinkId;
use noctule_proto::node::Transmit;
use noctule_proto::shard::Steering;
use noctule_proto::trace::TraceEvent;
use noctule_proto::units::Time;
use noctule_proto::wire::params::MIN_DATAGRAM;
use quinn_udp::RecvMeta;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

/// Turns before the task lets other tasks of its thread run.
const TURNS: usize = 16;
/// Trains collected per turn; with receive batches of the same order neither direction waits long for the other.
const TRAINS: usize = 8;
/// Stop collecting beyond this many bytes: what is sent next should still be in the cache.
const TURN_BYTES: usize = 256 * 1024;
/// Datagrams sent at most when the driver ends with its runtime.
const FAREWELLS: usize = 1024;
/// A deadline that `handle_timeout` did not move would keep a core busy; look again after this long.
const STUCK_DEADLINE: Duration = Duration::from_millis(1);

/// Datagrams that the node has produced and the socket has not taken yet.
struct Train {
    transmit: Option<Transmit>,
    /// When the node made them.
    at: Time,
    buf: Vec<u8>,
}

/// Datagrams of one train that are for another shard than that of the socket.
struct Astray {
    shard: usize,
    /// The buffer that they lie in, and where.
    buffer: usize,
    range: Range<usize>,
}

/// The shard of the first datagrams of a train, and how many bytes are for it; what is for none may go to `own`.
fn first_run(steering: Steering, own: usize, train: &[u8], stride: usize) -> (usize, usize) {
    if steering.count() == 1 {
        return (own, train.len());
    }
    let mut shards = train.chunks(stride).map(|datagram| steering.of_datagram(datagram).unwrap_or(own));
    let first = shards.next().unwrap_or(own);
    let more = shards.take_while(|shard| *shard == first).count();
    (first, train.len().min((1 + more) * stride))
}

/// See the file's heading.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// All shards of the endpoint, this one at `index`.
    shards: Arc<[Arc<Shared>]>,
    index: usize,
    steering: Steering,
    /// Of what was received last, what is for other shards.
    astray: Vec<Astray>,
    /// Links of other shards that have to go.
    superseded: Vec<LinkId>,
    sockets: Sockets,
    timer: Timer,
    /// What the timer is armed for.
    armed: Option<Time>,
    recv_buf: Box<[u8]>,
    meta: [RecvMeta; RECV_BUFFERS],
    trains: Vec<Train>,
    /// `trains[unsent..filled]` wait for the socket.
    filled: usize,
    unsent: usize,
    max_segments: usize,
    max_datagram: u16,
    counters: Arc<Counters>,
    trace: Option<TraceLog>,
    /// On their way from the node to the log.
    traced: Vec<TraceEvent>,
    /// Nobody needs this shard any more: it ends as it should.
    is_over: bool,
}

impl Driver {
    /// The driver of one of an endpoint's shards.
    pub(crate) fn new(
        shards: Arc<[Arc<Shared>]>,
        index: usize,
        steering: Steering,
        sockets: Sockets,
        max_datagram: u16,
        counters: Arc<Counters>,
        trace: Option<TraceLog>,
    ) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::clone(&shards[index]),
            shards,
            index,
            steering,
            astray: Vec::new(),
            superseded: Vec::new(),
            max_segments: sockets.max_segments(max_datagram),
            max_datagram,
            sockets,
            timer: Timer::new()?,
            armed: None,
            recv_buf: vec![0; RECV_BUFFERS * RECV_BUFFER_LEN].into_boxed_slice(),
            meta: [RecvMeta::default(); RECV_BUFFERS],
            trains: (0..TRAINS).map(|_| Train { transmit: None, at: Time::ZERO, buf: Vec::with_capacity(RECV_BUFFER_LEN) }).collect(),
            filled: 0,
            unsent: 0,
            counters,
            trace,
            traced: Vec::new(),
            is_over: false,
        })
    }

    /// Sends what is waiting. True if all of it went.
    fn flush(&mut self, cx: &mut Context<'_>) -> bool {
        while self.unsent < self.filled {
            let train = &mut self.trains[self.unsent];
            if let Some(transmit) = &train.transmit {
                let contents = &train.buf[..transmit.len];
                match self.sockets.poll_send(cx, transmit, contents) {
                    Poll::Pending => {
                        self.counters.send_blocked.fetch_add(1, Relaxed);
                        return false;
                    }
                    Poll::Ready(Ok(())) => self.counters.sent(transmit),
                    Poll::Ready(Err(error)) => self.on_send_error(cx, self.unsent, &error),
                }
            }
            self.trains[self.unsent].transmit = None;
            self.unsent += 1;
        }
        (self.filled, self.unsent) = (0, 0);
        true
    }

    /// What the kernel says of a train that it did not send. Too long: the node makes it again, smaller. An address or a rule of this host: attempts to connect
    /// end with it, and for links that are up the datagrams are lost, as with a router: the node learns of it by their missing acknowledgement. A train that
    /// the kernel cannot segment is sent piece by piece, and none is made again (`quinn-udp` lowers its limit).
    fn on_send_error(&mut self, cx: &mut Context<'_>, index: usize, error: &io::Error) {
        self.counters.send_errors.fetch_add(1, Relaxed);
        if is_of_addresses(error) {
            self.shared.trouble.notify_one();
        }
        let Some(whole) = self.trains[index].transmit.clone() else { return };
        let size = whole.segment_size.filter(|s| *s < whole.len);
        let is_invalid = error.raw_os_error() == Some(libc::EINVAL);
        if is_invalid && whole.local.is_some_and(|local| !is_of_this_host(local, whole.remote)) {
            // The address that this path is answered from is gone: no fault of the socket, which goes on sending trains and marks.
            return self.sockets.renew(&whole);
        }
        if self.is_too_long(&whole, error) {
            self.on_too_long(&whole, self.trains[index].at);
            return self.send_rest(cx, index, &whole);
        }
        let Some(size) = size else { return self.tell_refusal(&whole, error) };
        self.max_segments = self.max_segments.min(self.sockets.max_segments(size as u16));
        let buf = std::mem::take(&mut self.trains[index].buf);
        for piece in buf[..whole.len].chunks(size) {
            let one = Transmit { len: piece.len(), segment_size: None, ..whole.clone() };
            match self.sockets.poll_send(cx, &one, piece) {
                Poll::Ready(Ok(())) => self.counters.sent(&one),
                Poll::Ready(Err(error)) if quinn_udp::is_msg_size_err(&error) => {
                    self.on_too_long(&one, self.trains[index].at);
                    break;
                }
                Poll::Ready(Err(error)) => self.tell_refusal(&one, &error),
                // The buffer is full: what is left is lost, and repaired.
                Poll::Pending => break,
            }
        }
        self.trains[index].buf = buf;
    }

    /// The last datagram of a train that was refused may be shorter than the others: it goes alone.
    fn send_rest(&mut self, cx: &mut Context<'_>, index: usize, whole: &Transmit) {
        let Some(rest) = whole.segment_size.map(|size| whole.len % size).filter(|rest| *rest > 0 && *rest < whole.len) else { return };
        let one = Transmit { len: rest, segment_size: None, ..whole.clone() };
        match self.sockets.poll_send(cx, &one, &self.trains[index].buf[whole.len - rest..whole.len]) {
            Poll::Ready(Ok(())) => self.counters.sent(&one),
            Poll::Ready(Err(error)) if quinn_udp::is_msg_size_err(&error) => self.on_too_long(&one, self.trains[index].at),
            // Lost, and repaired.
            Poll::Ready(Err(_)) | Poll::Pending => {}
        }
    }

    /// Whether a datagram was too long for the own interface. Of a train older kernels say so with EINVAL, as of a socket that cannot send trains at all.
    fn is_too_long(&mut self, whole: &Transmit, error: &io::Error) -> bool {
        if quinn_udp::is_msg_size_err(error) {
            return true;
        }
        let Some(size) = whole.segment_size.filter(|_| error.raw_os_error() == Some(libc::EINVAL)) else { return false };
        let route = Route::towards(whole.local, whole.remote).ok().filter(|route| !self.shared.lock().node.has_address(route.source));
        if route.and_then(|route| route.datagram(whole.remote)).is_some_and(|most| usize::from(most) < size) {
            self.sockets.renew(whole);
            return true;
        }
        false
    }

    /// The node is told how long datagrams may be, and makes again what was in these.
    fn on_too_long(&mut self, whole: &Transmit, at: Time) {
        let size = u16::try_from(whole.segment_size.unwrap_or(whole.len)).unwrap_or(u16::MAX);
        let route = Route::towards(whole.local, whole.remote).ok();
        let mut state = self.shared.lock();
        let now = state.now;
        state.tell_size(now, route, whole.remote);
        state.node.on_size_refused(now, whole.remote, size, at);
        if size <= MIN_DATAGRAM {
            state.on_refused(whole.remote, libc::EMSGSIZE);
        }
    }

    /// An attempt to connect need not wait for an answer to what was not sent.
    fn tell_refusal(&self, whole: &Transmit, error: &io::Error) {
        if let Some(errno) = error.raw_os_error().filter(|e| is_refusal(*e)) {
            self.shared.lock().on_refused(whole.remote, errno);
        }
    }

    /// Receives one batch; the number of buffers filled.
    fn receive(&mut self, cx: &mut Context<'_>) -> usize {
        let mut chunks = self.recv_buf.chunks_exact_mut(RECV_BUFFER_LEN);
        let mut bufs: [IoSliceMut<'_>; RECV_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("as many chunks as buffers")));
        match self.sockets.poll_recv(cx, &mut bufs, &mut self.meta) {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(_)) => {
                // What an ICMP message put on the socket, or memory pressure: nothing to do, and the next call goes on.
                self.counters.recv_errors.fetch_add(1, Relaxed);
                cx.waker().wake_by_ref();
                0
            }
            Poll::Pending => 0,
        }
    }

    /// One turn with the node. True if there is more to do at once.
    fn turn(&mut self, cx: &mut Context<'_>, received: usize) -> Turn {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let now = state.now;
        state.driver_looks();
        if let Some(sockets) = state.new_sockets.take() {
            self.max_segments = sockets.max_segments(self.max_datagram);
            self.sockets = sockets;
            state.node.migrate(now);
        }
        for detour in std::mem::take(&mut state.detours) {
            if detour.is_fresh {
                // Without another port the link stays where it is.
                if self.sockets.make_detour(detour.remote).is_err() {
                    continue;
                }
            } else {
                self.sockets.end_detour(detour.remote);
            }
            state.node.migrate_link(now, detour.link);
        }
        let mut packets = 0u64;
        for (at, (meta, buf)) in self.meta[..received].iter().zip(self.recv_buf.chunks_exact_mut(RECV_BUFFER_LEN)).enumerate() {
            let from = Socket::received(meta);
            let mut begin = 0;
            while begin < from.len {
                let (shard, len) = first_run(self.steering, self.index, &buf[begin..from.len], from.stride);
                let range = begin..begin + len;
                begin += len;
                if shard == self.index {
                    packets += state.node.handle_train(now, from.remote, from.local, from.ecn, &mut buf[range], from.stride);
                } else {
                    packets += len.div_ceil(from.stride) as u64;
                    self.astray.push(Astray { shard, buffer: at, range });
                }
            }
            self.counters.received_bytes.fetch_add(from.len as u64, Relaxed);
        }
        self.counters.received_datagrams.fetch_add(packets, Relaxed);
        state.close_due_links(now);
        if state.node.poll_timeout().is_some_and(|t| t <= now) {
            state.node.handle_timeout(now);
        }
        let mut bytes = 0;
        while self.filled < self.trains.len() && bytes < TURN_BYTES {
            let train = &mut self.trains[self.filled];
            match state.node.poll_transmit(now, self.max_segments, &mut train.buf) {
                None => break,
                Some(transmit) => {
                    bytes += transmit.len;
                    (train.transmit, train.at) = (Some(transmit), now);
                    self.filled += 1;
                }
            }
        }
        state.dispatch(now);
        self.superseded.extend(std::iter::from_fn(|| state.node.poll_superseded()));
        if self.trace.is_some() {
            self.traced.extend(std::iter::from_fn(|| state.node.poll_trace()));
        }
        if state.is_orphan && state.is_idle() && self.filled == 0 {
            return Turn::Over;
        }
        if self.filled > 0 || (received > 0 && !is_lone(&self.meta[..received])) {
            return Turn::Again;
        }
        let next = match (state.node.poll_timeout(), state.next_link_close()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let next = next.map(|t| if t <= now { now + STUCK_DEADLINE } else { t });
        if next.is_some_and(|t| t <= shared.now()) {
            return Turn::Again;
        }
        state.driver_sleeps(cx.waker());
        Turn::Sleep(next)
    }

    /// What is for other shards goes there, without the lock of this one: no two are held at a time.
    fn tell_others(&mut self) {
        self.astray.sort_by_key(|run| run.shard);
        for runs in self.astray.chunk_by(|a, b| a.shard == b.shard) {
            let mut state = self.shards[runs[0].shard].lock();
            // Its driver would have to send what this leads to.
            if state.is_driverless() {
                continue;
            }
            let now = state.now;
            for run in runs {
                let from = Socket::received(&self.meta[run.buffer]);
                let train = &mut self.recv_buf[run.buffer * RECV_BUFFER_LEN..][run.range.clone()];
                let packets = state.node.handle_train(now, from.remote, from.local, from.ecn, train, from.stride);
                self.counters.astray.fetch_add(packets, Relaxed);
            }
            state.kick();
        }
        self.astray.clear();
        for link in self.superseded.drain(..) {
            let mut state = self.shards[self.steering.of_link(link)].lock();
            let now = state.now;
            state.node.give_place(now, link);
            state.kick();
        }
    }

    /// Hands what was traced to the log, without the lock.
    fn write_trace(&mut self) {
        if let Some(log) = self.trace.as_ref().filter(|_| !self.traced.is_empty()) {
            log.write(&self.traced);
            self.traced.clear();
        }
    }

    /// Arms the timer; true if it is time already.
    fn sleep(&mut self, cx: &mut Context<'_>, until: Option<Time>) -> bool {
        let delay = until.map(|t| t.since(self.shared.now()));
        if self.armed != until {
            if delay == Some(Duration::ZERO) {
                return true;
            }
            if self.timer.arm(delay).is_err() {
                return false;
            }
            self.armed = until;
        }
        match self.timer.poll_fired(cx) {
            Poll::Ready(_) => {
                self.armed = None;
                true
            }
            Poll::Pending => false,
        }
    }
}

/// The kernel does not send from or to these addresses now: this host may have others.
fn is_of_addresses(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | HostUnreachable | InvalidInput | NetworkDown | NetworkUnreachable)
}

/// The system will not send there, now or a moment later: no full buffer or queue, which pass.
fn is_refusal(errno: i32) -> bool {
    !matches!(errno, libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED)
}

enum Turn {
    /// There is or may be more to do at once.
    Again,
    /// Nothing to do until then, or until a datagram or a kick comes.
    Sleep(Option<Time>),
    /// Nobody needs this endpoint any more.
    Over,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        for _ in 0..TURNS {
            let flushed = this.flush(cx);
            let received = this.receive(cx);
            if !flushed && received == 0 {
                // Only the socket can change anything: it wakes this task when it takes or has something.
                let mut state = this.shared.lock();
                state.driver_sleeps(cx.waker());
                return Poll::Pending;
            }
            let turn = this.turn(cx, received);
            this.tell_others();
            this.write_trace();
            match turn {
                Turn::Again => {}
                Turn::Over => {
                    this.is_over = true;
                    return Poll::Ready(());
                }
                Turn::Sleep(until) => {
                    // A lone datagram wakes the tasks that wait for it without another look at the socket, but what has come meanwhile goes first.
                    if received > 0 && this.sockets.is_readable(cx) {
                        continue;
                    }
                    if !this.sleep(cx, until) {
                        return Poll::Pending;
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    /// The driver ends when nothing needs it, with its runtime, or by a panic. Unless nothing needs it, tasks that still wait must hear of it, and an endpoint that
    /// lacks a shard would be deaf to some of its callers: all of it ends.
    fn drop(&mut self) {
        let gone = || CloseReason::local(Code::Shutdown, Layer::Link, "the endpoint's driver is gone");
        let mut state = self.shared.lock();
        let now = state.now;
        state.shut_down(now, gone());
        // The far ends should not have to find out by a time-out; what the socket does not take at once is not worth waiting for.
        let buf = &mut self.trains[0].buf;
        for _ in 0..FAREWELLS {
            let Some(transmit) = state.node.poll_transmit(now, 1, buf) else { break };
            if self.sockets.send_now(&transmit, &buf[..transmit.len]).is_err() {
                break;
            }
        }
        state.driver_ends();
        if let Some(log) = &self.trace {
            self.traced.extend(std::iter::from_fn(|| state.node.poll_trace()));
            log.write(&self.traced);
        }
        drop(state);
        if self.is_over {
            return;
        }
        for other in self.shards.iter().filter(|shard| !Arc::ptr_eq(shard, &self.shared)) {
            let mut state = other.lock();
            let now = state.now;
            state.shut_down(now, gone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_cut_where_its_shard_changes() {
        const STRIDE: usize = 30;
        let steering = Steering::new(2, [1, 2, 3]);
        let label = |shard| (0u32..).find(|word| steering.of_word(*word) == shard).unwrap();
        let mut train = Vec::new();
        for shard in [1, 1, 0, 1] {
            let mut datagram = vec![0x40];
            datagram.extend_from_slice(&label(shard).to_be_bytes());
            datagram.resize(STRIDE, 7);
            train.extend(datagram);
        }
        // The last is shorter than the others, and another one too short to be for any.
        train.truncate(3 * STRIDE + 20);
        let mut cut = Vec::new();
        let mut rest = &train[..];
        while !rest.is_empty() {
            let (shard, len) = first_run(steering, 0, rest, STRIDE);
            cut.push((shard, len));
            rest = &rest[len..];
        }
        assert_eq!(cut, [(1, 2 * STRIDE), (0, STRIDE), (1, 20)]);
        assert_eq!(first_run(steering, 0, &train[..3], STRIDE), (0, 3));
        assert_eq!(first_run(Steering::alone(), 0, &train, STRIDE), (0, train.len()), "one shard is asked nothing");
    }
}
