//! Between a TCP connection and a stream: bytes both ways, ends as ends, resets as resets.
//!
//! A reset travels as "stop" of the flow back and as a reset of the flow there, once what the connection had sent before was delivered: so that is not lost,
//! and no end that looks orderly comes in its place.

use crate::report::{Counts, End};
use crate::stream::{Incoming, RESET, is_reset, no_room};
use bytes::{Buf, Bytes};
use noctule::{FlowError, SendStream};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::pin;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

/// Pieces of one system call.
const MOST_SLICES: usize = 64;
/// How long what a reset connection had sent before may take to be handed over.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// A connection in which nothing moves is probed after this: a host that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What every socket of the proxy is set to: no delay of small writes, probes of silent peers.
pub(crate) fn prepare(tcp: &TcpStream) {
    // One that is closed already refuses this, and is found out soon.
    let _ = tcp.set_nodelay(true);
    let _ = SockRef::from(tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(Duration::from_secs(15)));
}

/// Lets the connection end in a reset when it is dropped.
pub(crate) fn reset(tcp: &TcpStream) {
    let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
}

/// Why one direction ended before its end.
enum Broken {
    /// The TCP connection is reset.
    Here,
    /// The far end stopped what is sent to it: its connection is reset. What it sent before still comes.
    Stopped,
    /// Nothing more comes and nothing goes.
    Gone(End),
}

fn of_flow(error: FlowError) -> Broken {
    match error {
        FlowError::Closed(reason) if reason.code == noctule::Code::Stopped => Broken::Stopped,
        error if is_reset(&error) => Broken::Gone(End::ResetThere),
        other => Broken::Gone(no_room(&other).map_or_else(|| End::Lost(other.to_string()), End::Refused)),
    }
}

/// Carries a connection until both ways have ended. One that says more than `most` bytes is reset. With `awaits` the far end's answer comes before
/// its bytes; one that is not "connected" resets the connection.
pub(crate) async fn relay(tcp: TcpStream, mut send: SendStream, mut incoming: Incoming, most: u64, awaits: bool, counts: &Counts) -> End {
    // A process that is killed does not close its connections in an orderly way: what it still held is lost.
    reset(&tcp);
    let mut state = ConnectionState::default();
    let end = run(&tcp, &mut send, &mut incoming, most, awaits, counts, &mut state).await;
    counts.note(&send.stats(), &incoming.recv.stats());
    // The server's owner ends a connection as its target might: what was let through arrives, the answer to the request before all.
    let manner = match &end {
        End::Closed(_) if state.down_ended => &End::ResetBehind,
        End::Closed(_) => &End::ResetHere,
        other => other,
    };
    match manner {
        End::Finished => {
            let _ = SockRef::from(&tcp).set_linger(None);
        }
        End::ResetHere => {
            reset(&tcp);
            drop(tcp);
            if state.is_delivered {
                incoming.recv.stop(RESET);
            } else {
                heard(&send).await;
                incoming.recv.stop(RESET);
                // An end might come there before the stop, and look like an orderly one.
                send.reset(RESET);
            }
        }
        // Nothing is left by which the far end could be told but this, which may overtake what was sent before.
        End::ResetBehind => {
            reset(&tcp);
            drop(tcp);
            if !state.is_delivered {
                heard(&send).await;
            }
            send.reset(RESET);
        }
        _ => {
            reset(&tcp);
            send.reset(RESET);
            incoming.recv.stop(RESET);
        }
    }
    end
}

/// Waits until the far end has all that was sent: a reset overtakes the rest.
async fn heard(send: &SendStream) {
    let mut pause = Duration::from_millis(1);
    let arriving = async {
        loop {
            let stats = send.stats();
            if stats.waiting == 0 && stats.outstanding == 0 && stats.source_packets > 0 {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    };
    let _ = tokio::time::timeout(LAST_BYTES, arriving).await;
}

/// How far a connection is.
#[derive(Default)]
struct ConnectionState {
    up_ended: bool,
    /// All that came from the connection is at the far end, its end too.
    is_delivered: bool,
    /// All that comes from the stream was written.
    down_ended: bool,
    /// What the far end sent before its connection was reset is still to be written.
    is_reset_there: bool,
}

async fn run(
    tcp: &TcpStream,
    send: &mut SendStream,
    incoming: &mut Incoming,
    most: u64,
    awaits: bool,
    counts: &Counts,
    state: &mut ConnectionState,
) -> End {
    let (mut is_whole, mut reading, mut over) = (true, Reading::new(most), None);
    {
        let mut up = pin!(up(tcp, send, &mut reading, counts));
        let mut down = pin!(down(tcp, incoming, awaits, counts));
        let mut deadline = pin!(sleep_until(Instant::now()));
        while !(state.up_ended && state.down_ended) {
            let ended = tokio::select! {
                // Before "down": a stop and an end that come together are a reset.
                biased;
                ended = &mut up, if !state.up_ended => {
                    state.up_ended = true;
                    state.is_delivered = ended.is_ok();
                    ended
                }
                ended = &mut down, if !state.down_ended => match ended {
                    Ok(()) => {
                        state.down_ended = true;
                        if state.is_reset_there { Ok(()) } else { shut(tcp) }
                    }
                    // A reset that comes with the stop of the other way: nothing more is read.
                    Err(Broken::Stopped) => Err(Broken::Gone(End::ResetThere)),
                    broken => broken,
                },
                // Its reader may wait for credit, or have ended, and does not notice.
                () = is_broken(tcp), if !state.is_reset_there => Err(Broken::Here),
                () = &mut deadline, if state.is_reset_there => return End::ResetThere,
                end = counts.ended() => Err(Broken::Gone(end)),
            };
            match ended {
                Ok(()) => {}
                Err(Broken::Here) => {
                    is_whole = false;
                    break;
                }
                Err(Broken::Stopped) => {
                    state.is_reset_there = true;
                    deadline.as_mut().reset(Instant::now() + LAST_BYTES);
                }
                Err(Broken::Gone(end)) => {
                    over = Some(end);
                    break;
                }
            }
        }
    }
    if let Some(end) = over {
        if matches!(end, End::Closed(_)) && reading.is_let_through {
            // It was counted, so it arrives.
            let _ = tokio::time::timeout(LAST_BYTES, reading.pass_on(send, counts)).await;
        }
        return end;
    }
    match *state {
        ConnectionState { is_reset_there: true, .. } => End::ResetThere,
        ConnectionState { up_ended: true, down_ended: true, .. } if is_whole => End::Finished,
        ConnectionState { down_ended: true, .. } => End::ResetBehind,
        _ => {
            // What the connection said before it broke.
            let _ = tokio::time::timeout(LAST_BYTES, read_all(tcp, send, &mut reading, counts)).await;
            End::ResetHere
        }
    }
}

/// Nothing more comes: the connection hears it.
fn shut(tcp: &TcpStream) -> Result<(), Broken> {
    match SockRef::from(tcp).shutdown(Shutdown::Write) {
        Ok(()) => Ok(()),
        // Reset in the meantime: its reader says so.
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
        Err(_) => Err(Broken::Here),
    }
}

/// Waits until the system says that the connection has failed.
async fn is_broken(tcp: &TcpStream) {
    if tcp.ready(Interest::ERROR).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// From the connection to the stream.
async fn up(tcp: &TcpStream, send: &mut SendStream, reading: &mut Reading, counts: &Counts) -> Result<(), Broken> {
    loop {
        tokio::select! {
            ready = tcp.readable() => ready.map_err(|_| Broken::Here)?,
            error = send.stopped() => return Err(of_flow(error)),
        }
        if !read_all(tcp, send, reading, counts).await? {
            break;
        }
    }
    tokio::select! {
        delivered = send.finish() => delivered.map_err(of_flow),
        () = is_broken(tcp) => Err(Broken::Here),
    }
}

/// What was read from a connection and is not in the stream yet. It outlives the task that read it: a connection may break while that task waits for its rate
/// or for credit, and what it read comes before what is still to be read.
struct Reading {
    /// Bytes that may still come.
    left: u64,
    buffer: Vec<u8>,
    /// So much of the buffer is in the stream.
    at: usize,
    /// The user has paid for the buffer.
    is_let_through: bool,
}

impl Reading {
    fn new(left: u64) -> Self {
        Self { left, buffer: Vec::new(), at: 0, is_let_through: false }
    }

    /// Into the stream with it. Dropping the future loses nothing.
    async fn pass_on(&mut self, send: &mut SendStream, counts: &Counts) -> Result<(), Broken> {
        if self.at < self.buffer.len() && !self.is_let_through {
            let at = counts.charge_up(self.buffer.len()).map_err(Broken::Gone)?;
            self.is_let_through = true;
            counts.wait(at).await;
            counts.is_passed_up();
        }
        while self.at < self.buffer.len() {
            self.at += send.write(&self.buffer[self.at..]).await.map_err(of_flow)?;
        }
        counts.is_passed_up();
        self.buffer.clear();
        (self.at, self.is_let_through) = (0, false);
        Ok(())
    }
}

/// What is there to be read; false at the end of the connection.
async fn read_all(tcp: &TcpStream, send: &mut SendStream, reading: &mut Reading, counts: &Counts) -> Result<bool, Broken> {
    loop {
        reading.pass_on(send, counts).await?;
        reading.buffer.reserve(counts.chunk_up());
        match tcp.try_read_buf(&mut reading.buffer) {
            Ok(0) => return Ok(false),
            Ok(len) => reading.left = reading.left.checked_sub(len as u64).ok_or(Broken::Here)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // An idle connection holds no buffer.
                reading.buffer = Vec::new();
                return Ok(true);
            }
            Err(_) => return Err(Broken::Here),
        }
        consume_budget().await;
    }
}

/// From the stream to the connection.
async fn down(tcp: &TcpStream, incoming: &mut Incoming, awaits: bool, counts: &Counts) -> Result<(), Broken> {
    if awaits {
        let answer = incoming.answer_or_reset().await.map_err(of_flow)?;
        if answer.outcome != crate::wire::Outcome::Connected {
            return Err(Broken::Gone(End::Refused(answer)));
        }
    }
    let mut chunks = vec![incoming.take_rest()];
    loop {
        counts.pass_down(chunks.iter().map(Bytes::len).sum()).await.map_err(Broken::Gone)?;
        write_all(tcp, &mut chunks).await.map_err(|_| Broken::Here)?;
        chunks = Vec::new();
        if incoming.recv.read_chunks(&mut chunks, counts.chunk_down()).await.map_err(of_flow)? == 0 {
            break;
        }
        consume_budget().await;
    }
    Ok(())
}

/// Writes all of the chunks, several with one system call.
async fn write_all(tcp: &TcpStream, chunks: &mut [Bytes]) -> io::Result<()> {
    let mut at = 0;
    loop {
        while chunks.get(at).is_some_and(Bytes::is_empty) {
            at += 1;
        }
        if at == chunks.len() {
            return Ok(());
        }
        let slices: Vec<IoSlice<'_>> = chunks[at..].iter().take(MOST_SLICES).map(|chunk| IoSlice::new(chunk)).collect();
        match tcp.try_write_vectored(&slices) {
            Ok(mut written) => {
                while written > 0 {
                    let part = written.min(chunks[at].len());
                    chunks[at].advance(part);
                    written -= part;
                    at += usize::from(chunks[at].is_empty());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => tcp.writable().await?,
            Err(error) => return Err(error),
        }
    }
}
