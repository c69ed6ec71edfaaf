//! Datagrams: an association is a stream that says what it is for and lives as long as it does, and a flow of messages each way (`btp`, with a lifetime).

use crate::dial::{self, Dialler};
use crate::listen;
use crate::report::{Counts, End};
use crate::senders::Senders;
use crate::stream::{self, Incoming, accept, refuse};
use crate::target::{Host, Target};
use crate::wire::{Answer, DATAGRAM_TAG, Outcome, Record, emit_datagram, parse_datagram};
use bytes::Bytes;
use noctule::{
    Class, FarText, FlowKind, FlowOptions, IncomingFlow, MessageOptions, MessageReceiver, MessageSender, Mode, OpenError, SendStream,
    Session,
};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How long a datagram may be under way unless the configuration says otherwise.
pub const LIFETIME: Duration = Duration::from_secs(1);
/// Datagrams that wait for their association.
pub(crate) const MOST_WAITING: usize = 64;
/// Addresses of targets that one association remembers.
const MOST_KNOWN: usize = 256;
/// Names that one association resolves at a time.
const MOST_LOOKUPS: usize = 8;
/// A name that was not found is looked up again after this, if datagrams still come for it.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long the flow of an association that has ended is looked out for.
const LATE: Duration = Duration::from_secs(5);
/// Bytes of the largest datagram.
pub(crate) const LARGEST: usize = 65_535;
/// What is told, once, when there are more sources than a listener tells apart.
pub(crate) const FULL: &str = "this listener tells 960 UDP sources apart, and has as many: datagrams of further ones are dropped";

fn tag(id: u32) -> u64 {
    DATAGRAM_TAG | u64::from(id)
}

/// A flow of datagrams, which its association takes: not what a session begins with.
pub fn is_datagrams(options: &FlowOptions) -> bool {
    options.kind != FlowKind::Stream && options.tag & !u64::from(u32::MAX) == DATAGRAM_TAG
}

fn options(id: u32, lifetime: Duration) -> FlowOptions {
    FlowOptions {
        mode: Mode::Btp,
        kind: FlowKind::UnorderedMessages,
        class: Class::Latency,
        lifetime: Some(lifetime),
        tag: tag(id),
        ..FlowOptions::default()
    }
}

/// The end of an association that asked for it.
pub(crate) struct Association {
    /// Lives as long as the association.
    stream: SendStream,
    incoming: Incoming,
    session: Session,
    id: u32,
    out: MessageSender,
    is_answered: bool,
}

fn not_opened(error: OpenError) -> Answer {
    let outcome = if matches!(error, OpenError::Limit { .. }) { Outcome::Busy } else { Outcome::Unreachable };
    Answer::new(outcome, error.to_string())
}

/// Takes and drops the far end's flow of an association that has ended or was refused. It would otherwise wait for as long as the session lasts.
pub(crate) fn forget(session: &Session, id: u32) {
    let session = session.clone();
    tokio::spawn(async move {
        let taken = session.accept_flow_if(|o| is_datagrams(o) && o.tag == tag(id));
        drop(tokio::time::timeout(LATE, taken).await);
    });
}

/// Asks for an association. Datagrams may be sent at once.
pub(crate) async fn open(session: &Session, record: &Record, id: u32, lifetime: Duration) -> Result<Association, Answer> {
    let (stream, incoming) = stream::open(session, record, &[], Class::Latency).await?;
    let out = session.open_messages(options(id, lifetime)).map_err(not_opened)?;
    Ok(Association { stream, incoming, session: session.clone(), id, out, is_answered: false })
}

/// Sends a datagram; one for which there is no room is lost, as on any link.
fn send(out: &MessageSender, target: Option<&Target>, data: &[u8], counts: &Counts) {
    if !counts.passes_up(data.len()) {
        return;
    }
    let _ = out.try_send(emit_datagram(target, data).into(), MessageOptions::default());
}

/// Datagrams of the far end, once its flow is here. Dropped before, it looks out for the flow.
struct Coming {
    session: Session,
    id: u32,
    flow: Option<MessageReceiver>,
}

impl Coming {
    /// The next one; `None`: no more come.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    async fn next(&mut self) -> Option<Bytes> {
        let id = self.id;
        loop {
            match &mut self.flow {
                Some(flow) => return flow.recv().await.ok().flatten().map(|message| message.data),
                None => match self.session.accept_flow_if(|o| is_datagrams(o) && o.tag == tag(id)).await {
                    Ok(IncomingFlow::Messages(flow)) => self.flow = Some(flow),
                    Ok(_) => {}
                    Err(_) => return None,
                },
            }
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if self.flow.is_none() && self.session.close_reason().is_none() {
            forget(&self.session, self.id);
        }
    }
}

impl Association {
    /// Waits until the far end has taken it.
    ///
    /// # Errors
    /// Why it has not.
    pub(crate) async fn accepted(&mut self) -> Result<(), Answer> {
        let answer = self.incoming.answer().await;
        self.is_answered = answer.outcome == Outcome::Connected;
        if self.is_answered { Ok(()) } else { Err(answer) }
    }

    /// Carries datagrams until the association ends: those that `outgoing` gives to the far end, those of the far end to `deliver`.
    pub(crate) async fn run(
        mut self,
        outgoing: &mut mpsc::Receiver<(Option<Target>, Bytes)>,
        idle: Duration,
        counts: &Counts,
        deliver: impl Fn(Option<Target>, &[u8]) + Send,
    ) -> End {
        let mut coming = Coming { session: self.session.clone(), id: self.id, flow: None };
        let mut is_answered = self.is_answered;
        let mut last = Instant::now();
        loop {
            tokio::select! {
                next = outgoing.recv() => {
                    let Some((target, data)) = next else { return End::Finished };
                    send(&self.out, target.as_ref(), &data, counts);
                    last = Instant::now();
                }
                word = word(&mut self.incoming, is_answered) => match word {
                    Some(Answer { outcome: Outcome::Connected, .. }) => is_answered = true,
                    Some(answer) => return End::Refused(answer),
                    None => return ended(&self.session),
                },
                data = coming.next() => {
                    let Some(data) = data else { return ended(&self.session) };
                    if let Ok((source, data)) = parse_datagram(&data)
                        && counts.passes_down(data.len())
                    {
                        deliver(source, data);
                    }
                    last = Instant::now();
                }
                _ = self.stream.stopped() => return ended(&self.session),
                end = counts.ended() => return end,
                () = sleep_until(last + idle) => return End::Idle,
            }
        }
    }
}

/// What the far end says on the stream of an association: the answer, then its end.
async fn word(incoming: &mut Incoming, is_answered: bool) -> Option<Answer> {
    if is_answered {
        incoming.ended().await;
        return None;
    }
    Some(incoming.answer().await)
}

fn ended(session: &Session) -> End {
    match session.close_reason() {
        Some(reason) => End::Lost(format!("session closed: {reason}")),
        None => End::Finished,
    }
}

/// What the far end of an association does.
pub(crate) struct Served {
    pub id: u32,
    pub lifetime: Duration,
    /// Only this one; `None`: whatever each datagram names.
    pub target: Option<Target>,
    pub dialler: Dialler,
    pub idle: Duration,
    /// Hears which address a target that is fixed has.
    pub reached: Box<dyn Fn(SocketAddr) + Send + Sync>,
}

/// The far end of an association: a socket of its own, to which any host may answer if its target is not fixed.
pub(crate) async fn serve(session: &Session, mut stream: SendStream, mut incoming: Incoming, served: Served, counts: &Counts) -> End {
    let Served { id, lifetime, target, dialler, idle, reached } = served;
    let Dialler { mut rules, lookups: share, mark, .. } = dialler;
    let version = || counts.user().map(|user| user.version());
    let mut rules_of = version();
    let prepared = async {
        let fixed = match &target {
            Some(target) => dial::resolve(target, &rules, &share).await?.front().copied(),
            None => None,
        };
        let socket = listen::udp_anywhere(mark).map_err(|error| Answer::new(dial::outcome(&error), error.to_string()))?;
        let out = session.open_messages(options(id, lifetime)).map_err(not_opened)?;
        Ok::<_, Answer>((fixed, Arc::new(socket), out))
    };
    let (fixed, socket, out) = match prepared.await {
        Ok(prepared) => prepared,
        Err(answer) => {
            forget(session, id);
            refuse(stream, incoming, answer.clone()).await;
            return End::Refused(answer);
        }
    };
    let bound = socket.local_addr().ok().map(Target::from);
    if let Err(error) = accept(&mut stream, Answer { outcome: Outcome::Connected, bound, text: FarText::default() }).await {
        return End::Lost(error.to_string());
    }
    if let Some(fixed) = fixed {
        reached(fixed);
    }
    let mut coming = Coming { session: session.clone(), id, flow: None };
    let mut lookups = JoinSet::new();
    let mut known: HashMap<Target, Known> = HashMap::new();
    let permits = Arc::new(Semaphore::new(MOST_LOOKUPS));
    let mut buffer = vec![0; LARGEST];
    let mut last = Instant::now();
    let end = loop {
        tokio::select! {
            data = coming.next() => {
                let Some(data) = data else { break ended(session) };
                last = Instant::now();
                let Ok((named, payload)) = parse_datagram(&data) else { continue };
                // Where the target is fixed, a change of the rules looks after it.
                if let Some(user) = counts.user().filter(|_| fixed.is_none() && version() != rules_of) {
                    (rules, rules_of) = (user.limits().rules.clone(), version());
                    known.clear();
                    lookups.abort_all();
                }
                match (fixed, named) {
                    (Some(to), _) => send_to(&socket, to, payload, counts).await,
                    (None, None) => {}
                    (None, Some(named)) => match (known.get(&named).and_then(Known::get), &named.host) {
                        (Some(Some(to)), _) => send_to(&socket, to, payload, counts).await,
                        // Denied, or not found.
                        (Some(None), _) => {}
                        (None, Host::Ip(ip)) => {
                            let to = rules.check(&named.host, *ip, named.port).is_ok().then(|| SocketAddr::new(*ip, named.port));
                            if let Some(to) = to {
                                send_to(&socket, to, payload, counts).await;
                            }
                            remember(&mut known, named, to);
                        }
                        // Those behind it need not wait for its name.
                        (None, Host::Name(_)) => if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
                            let (rules, share, payload) = (rules.clone(), share.clone(), Bytes::copy_from_slice(payload));
                            lookups.spawn(async move {
                                let _permit = permit;
                                let to = dial::resolve(&named, &rules, &share).await.ok().and_then(|found| found.front().copied());
                                (named, to, payload)
                            });
                        },
                    },
                }
            }
            Some(found) = lookups.join_next() => if let Ok((named, to, payload)) = found {
                if let Some(to) = to {
                    send_to(&socket, to, &payload, counts).await;
                }
                remember(&mut known, named, to);
            },
            received = socket.recv_from(&mut buffer) => {
                // An error is about a datagram that was sent before.
                let Ok((len, source)) = received else { continue };
                let source = SocketAddr::new(source.ip().to_canonical(), source.port());
                match fixed {
                    Some(fixed) if fixed == source => send(&out, None, &buffer[..len], counts),
                    Some(_) => continue,
                    None => send(&out, Some(&source.into()), &buffer[..len], counts),
                }
                last = Instant::now();
            }
            () = incoming.ended() => break ended(session),
            end = counts.ended() => break end,
            () = sleep_until(last + idle) => break End::Idle,
        }
    };
    counts.note(&out.stats(), &coming.flow.as_ref().map(MessageReceiver::stats).unwrap_or_default());
    end
}

/// What a target was found to be; `to` is `None` if it was denied or not found, which may be over soon.
struct Known {
    to: Option<SocketAddr>,
    since: Instant,
}

impl Known {
    /// As far as it is to be believed.
    fn get(&self) -> Option<Option<SocketAddr>> {
        (self.to.is_some() || self.since.elapsed() < ASK_AGAIN).then_some(self.to)
    }
}

fn remember(known: &mut HashMap<Target, Known>, target: Target, to: Option<SocketAddr>) {
    if known.len() >= MOST_KNOWN && !known.contains_key(&target) {
        known.clear();
    }
    known.insert(target, Known { to, since: Instant::now() });
}

/// Sends to an address, from a socket that may be of IPv6. What cannot be sent is lost.
async fn send_to(socket: &UdpSocket, to: SocketAddr, data: &[u8], counts: &Counts) {
    if !counts.passes_down(data.len()) {
        return;
    }
    let to = match (socket.local_addr().map(|a| a.is_ipv6()), to.ip()) {
        (Ok(true), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
        _ => to,
    };
    let _ = socket.send_to(data, to).await;
}

/// Reads datagrams of a socket for as long as the future is polled: each source has an association of its own, which `open` asks for.
pub(crate) async fn listen<P, F>(
    socket: UdpSocket,
    idle: Duration,
    open: impl Fn(SocketAddr) -> F,
    report: impl Fn(SocketAddr, &Counts, Instant, End) + Clone + Send + 'static,
) where
    P: Send + 'static,
    F: Future<Output = Result<(Arc<Counts>, P, Association), Answer>> + Send + 'static,
{
    let socket = Arc::new(socket);
    let mut sources: Senders<mpsc::Sender<(Option<Target>, Bytes)>> = Senders::default();
    let mut tasks = JoinSet::new();
    let (mut buffer, mut is_full) = (vec![0; LARGEST], false);
    // Before this the runtime takes it for one without room.
    let _ = socket.writable().await;
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let Ok((len, from)) = received else { continue };
                let data = Bytes::copy_from_slice(&buffer[..len]);
                if let Some(queue) = sources.heard(&from) {
                    // Full: lost, as in any queue. Closed: its task is about to be taken away.
                    let _ = queue.try_send((None, data));
                    continue;
                }
                if !sources.has_room() {
                    if !std::mem::replace(&mut is_full, true) {
                        let end = End::Refused(Answer::new(Outcome::Busy, FULL));
                        report(SocketAddr::new(from.ip().to_canonical(), from.port()), &Counts::default(), Instant::now(), end);
                    }
                    continue;
                }
                is_full = false;
                let (queue, mut waiting) = mpsc::channel(MOST_WAITING);
                let _ = queue.try_send((None, data));
                let was_answered = sources.insert(from, queue);
                let (opening, socket, report) = (open(from), Arc::clone(&socket), report.clone());
                tasks.spawn(async move {
                    let (begun, mut counts) = (Instant::now(), Arc::default());
                    let end = match opening.await {
                        Ok((of_it, _place, association)) => {
                            counts = of_it;
                            association.run(&mut waiting, idle, &counts, |_, data| {
                                was_answered.store(true, Relaxed);
                                // One for which there is no room is lost.
                                let _ = socket.try_send_to(data, from);
                            }).await
                        }
                        Err(answer) => End::Refused(answer),
                    };
                    report(SocketAddr::new(from.ip().to_canonical(), from.port()), &counts, begun, end);
                    from
                });
            }
            Some(ended) = tasks.join_next() => match ended {
                Ok(from) => sources.forget(Some(&from), mpsc::Sender::is_closed),
                // A task that ended in a panic leaves its source behind.
                Err(_) => sources.forget(None, mpsc::Sender::is_closed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_that_was_not_found_is_asked_for_again() {
        let (mut known, target) = (HashMap::new(), "example.org:53".parse::<Target>().unwrap());
        let at = SocketAddr::from(([192, 0, 2, 1], 53));
        remember(&mut known, target.clone(), None);
        assert_eq!(known[&target].get(), Some(None));
        tokio::time::advance(ASK_AGAIN).await;
        assert_eq!(known[&target].get(), None);
        remember(&mut known, target.clone(), Some(at));
        tokio::time::advance(10 * ASK_AGAIN).await;
        assert_eq!(known[&target].get(), Some(Some(at)));
    }
}
