//! `noctule perf -c`: asks for a test, runs its half, prints both halves' views.

use super::end::{self, Carrier, Role};
use super::output::Output;
use super::protocol::{CONTROL_TAG, Direction, Mode, Record, Request, TcpOffer, VERSION};
use super::report::{self, Ends, Form, Report};
use super::tcp;
use crate::cli::{IdentityArgs, PeerArgs, PerfArgs, TraceArgs, ViaArgs};
use crate::failure::Failure;
use crate::identity;
use crate::overlay::{self, Gateway};
use crate::silence::{self, NO_WORD, Silence, Word};
use crate::transfer::records::{self, Reader};
use crate::units::{CcName, time};
use noctule::{Endpoint, FarText, FlowOptions, NodeConfig, PublicKey, RouteStats, SendStream, Session};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;

/// Code of a session that a client leaves in the middle.
const INTERRUPTED: u64 = 2;
/// How long the far end may take to hear that this side leaves.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Bytes per btp message unless told: fits one packet on any path.
const MESSAGE_LENGTH: usize = 1200;

fn request(args: &PerfArgs) -> Request {
    let is_lossy = matches!(args.mode, Mode::Btp | Mode::Transparent);
    Request {
        version: VERSION,
        mode: args.mode,
        // A file ends when it ends.
        seconds: if args.file.is_some() || args.bytes.is_some() { 86_400.0 } else { (args.time.0 + args.omit.0).as_secs_f64() },
        interval: args.interval.0.as_secs_f64(),
        parallel: args.parallel,
        direction: match (args.reverse, args.bidir) {
            (true, _) => Direction::Reverse,
            (_, true) => Direction::Both,
            _ => Direction::Forward,
        },
        rate: args.rate.map(|r| r.0.bytes_per_sec() * 8.0),
        length: args.length.map(|l| usize::try_from(l.0).unwrap_or(usize::MAX)).or(is_lossy.then_some(MESSAGE_LENGTH)),
        lifetime_ms: (args.mode == Mode::Btp).then_some(args.lifetime.0.as_secs_f64() * 1e3),
        is_file: args.file.is_some(),
        bytes: args.bytes.map(|b| b.0),
        cc: args.cc.unwrap_or_default().to_string().into(),
        tcp_cc: args.tcp_cc.as_deref().map(FarText::from),
    }
}

/// How this side presents itself, and what it writes down.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub identity: &'a IdentityArgs,
    pub via: &'a ViaArgs,
    pub trace: &'a TraceArgs,
    /// Of the trace.
    pub title: &'a str,
}

/// A connection to a responder, by which measurements are asked for.
pub struct Connection {
    pub endpoint: Endpoint,
    pub session: Session,
    /// Kept as long as the session.
    gateway: Option<Gateway>,
    peer: identity::Peer,
    ours: PublicKey,
}

impl Connection {
    /// Connects to `host`, whose key is settled first.
    pub async fn open(host: &str, port: Option<u16>, cc: CcName, peer: &PeerArgs, how: How<'_>) -> Result<Self, Failure> {
        let peer = identity::Peer::far_end(host, port, peer, how.identity, how.via).await?;
        Self::to(peer, cc, how).await
    }

    /// Connects to a peer whose key is settled.
    pub async fn to(peer: identity::Peer, cc: CcName, how: How<'_>) -> Result<Self, Failure> {
        let this = Self::early(peer, cc, how).await?;
        this.session.accepted().await.map_err(|e| this.peer.failure(this.ours, e))?;
        Ok(this)
    }

    /// The same, after one round trip: the far end has the expected key, but has not said yet whether it takes this end.
    pub async fn early(peer: identity::Peer, cc: CcName, how: How<'_>) -> Result<Self, Failure> {
        let (mut config, _) = match peer.has_code() {
            true => identity::lasting_config(how.identity.key.as_deref())?,
            false => identity::endpoint_config(how.identity.key.as_deref())?,
        };
        config.node = NodeConfig { congestion: cc.0, accept: false, ..NodeConfig::default() };
        crate::silence::notice(&mut config.node);
        identity::protect(&mut config.node, how.identity)?;
        overlay::configure(&mut config.node, how.via, None)?;
        how.trace.apply(&mut config, how.title)?;
        let ours = config.identity.public();
        let endpoint = Endpoint::client(config)?;
        let gateway = Gateway::attach(&endpoint, ours, how.via, how.identity, false).await?;
        let session = overlay::reach(&endpoint, &peer, ours, gateway.as_ref()).await?;
        identity::check_protection(&session, how.identity)?;
        peer.prove(&session, ours).await?;
        Ok(Self { endpoint, session, gateway, peer, ours })
    }

    /// The far end.
    pub fn remote(&self) -> String {
        self.session.remote_address().map_or_else(|| self.peer.host.clone(), |a| a.to_string())
    }

    /// The far end by the name under which a test of it is reported: over nodes its address there, not that of the first node.
    fn far_end(&self) -> String {
        self.peer.overlay.map_or_else(|| self.remote(), |address| address.to_string())
    }

    /// This side's address of the link.
    fn local(&self) -> Option<SocketAddr> {
        let ip = self.session.stats().paths().first().and_then(|p| p.local);
        Some(SocketAddr::new(ip.unwrap_or(self.endpoint.local_addr().ip()), self.endpoint.local_addr().port()))
    }

    /// Tells the user that the far end says nothing, and that it is there again. To be called several times a second.
    pub fn watch(&self, silence: &mut Silence) {
        match silence.look(&self.session) {
            Some((Word::Silent, address)) => tell!("noctule: no answer from {address} for {}, still measuring", time(NO_WORD)),
            Some((Word::Heard, address)) => tell!("noctule: {address} is there again"),
            None => {}
        }
    }

    /// Leaves in the middle: the far end hears that this side was not content.
    pub fn leave(self) {
        self.session.abort(INTERRUPTED, "the client was interrupted, or the test failed there");
    }

    /// The nodes that a session goes by at once, as they were named.
    fn named(&self, routes: Vec<(PublicKey, RouteStats)>) -> Vec<(String, RouteStats)> {
        let name = |key| self.gateway.as_ref().and_then(|g| g.name_of(key)).unwrap_or_else(|| key.to_string());
        routes.into_iter().map(|(key, stats)| (name(key), stats)).collect()
    }

    /// Asks for a measurement: the control stream, and where to connect by TCP if it is about that.
    pub async fn ask(&self, question: &Record) -> Result<(SendStream, Reader, Option<TcpOffer>), Failure> {
        let options = FlowOptions { tag: CONTROL_TAG, class: noctule::Class::Latency, ..FlowOptions::default() };
        let (mut ask, answers) = self.session.open_bi(options).map_err(|e| self.failure(e.into()))?;
        records::write(&mut ask, question).await.map_err(|e| self.failure(e))?;
        let mut answers = Reader::new(answers);
        loop {
            match answers.record::<Record>().await.map_err(|e| self.failure(e))? {
                Some(Record::Ready { tcp }) => return Ok((ask, answers, tcp)),
                Some(Record::Waiting { ahead, seconds }) => {
                    note!("noctule: the server measures with others: {ahead} before this one, {seconds:.0} s at most; waiting");
                }
                Some(Record::Refused { message }) => return Err(Failure::Usage(format!("the server refused: {message}"))),
                _ => return Err(Failure::Stranger("it is no `noctule perf -s`".into())),
            }
        }
    }

    /// What the end of the session says may be more than what a stream noticed.
    pub fn failure(&self, error: Failure) -> Failure {
        match self.session.close_reason() {
            Some(reason) if !reason.is_clean() => Failure::closed(self.ours, &reason),
            _ => error,
        }
    }

    /// One TCP connection as the server offered it.
    pub async fn tcp(&self, offer: &TcpOffer, congestion: Option<&str>) -> Result<tokio::net::TcpStream, Failure> {
        let server = self.session.remote_address().ok_or_else(|| Failure::PeerGone("its address is not known any more".into()))?;
        tcp::connect(server, offer, congestion).await
    }

    /// Leaves. A far end that is silent is not waited for: the result is known.
    pub async fn close(self) {
        let leaving = async {
            self.session.close(0, "").await;
            drop(self.gateway);
            self.endpoint.wait_idle().await;
        };
        let _ = tokio::time::timeout(LAST_WORD, leaving).await;
    }
}

/// Runs one test. An interruption, or a far end that goes, still gives the report of what there is.
pub async fn run(args: &PerfArgs, host: &str) -> Result<(), Failure> {
    let form = Form { is_json: args.json, is_verbose: args.wide, scale: args.format.unwrap_or_default(), omit: args.omit.0.as_secs_f64() };
    let begun = crate::unless_interrupted(begin(args, host)).await;
    let (output, test) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            if args.json {
                say!("{}", report::failed_to_begin(&failure));
            }
            return Err(failure);
        }
    };
    test.run(args, form, output).await
}

/// A test that the server has agreed to.
struct Test {
    connection: Connection,
    request: Request,
    /// Kept: its end would be the end of the test.
    ask: SendStream,
    answers: Reader,
    tcp: Vec<tokio::net::TcpStream>,
}

async fn begin(args: &PerfArgs, host: &str) -> Result<(Output, Test), Failure> {
    args.foreign()?;
    if args.listen.bind.is_some() {
        return Err(Failure::Usage(
            "--bind is where a server (-s) listens; from which address a client sends is said with --path FROM".into(),
        ));
    }
    let request = request(args);
    request.check().map_err(Failure::Usage)?;
    overlay::check_mode(&args.via, request.mode)?;
    if let Some(path) = &args.file {
        // Before anything is asked.
        std::fs::File::open(path).map_err(|e| Failure::source(path, e))?;
    }
    let output = Output::new(args.logfile.as_deref(), args.timestamps)?;
    let how = How { identity: &args.identity, via: &args.via, trace: &args.trace, title: "noctule perf -c" };
    let connection = Connection::open(host, args.listen.port, args.cc.unwrap_or_default(), &args.peer, how).await?;
    let (ask, answers, offer) = connection.ask(&Record::Request(request.clone())).await?;
    let mut tcp = Vec::new();
    if request.mode == Mode::Tcp {
        let offer = offer.ok_or_else(|| Failure::Stranger("it offers no TCP port".into()))?;
        for _ in 0..request.parallel {
            tcp.push(connection.tcp(&offer, args.tcp_cc.as_deref()).await?);
        }
    }
    Ok((output, Test { connection, request, ask, answers, tcp }))
}

impl Test {
    async fn run(self, args: &PerfArgs, form: Form, output: Output) -> Result<(), Failure> {
        let Self { connection, request, ask, mut answers, tcp } = self;
        let cc = match request.mode {
            // The kernel's own choice decides a comparison with it.
            Mode::Tcp => tcp.first().and_then(tcp::congestion).map_or_else(|| "of the kernel".into(), |name| name.to_string()),
            Mode::Transparent => "none".into(),
            Mode::Brtp | Mode::Btp => args.cc.unwrap_or_default().to_string(),
        };
        let ends = Ends { remote: connection.far_end(), local: connection.local() };
        let mut report = Report::new(request.clone(), ends, cc, form, output);
        let (out, mut views) = mpsc::channel(64);
        let role = Role {
            sends: request.direction != Direction::Reverse,
            receives: request.direction != Direction::Forward,
            file: args.file.clone(),
        };
        let carrier = Carrier { session: connection.session.clone(), tcp };
        let endpoint = connection.endpoint.clone();
        let work = end::run(&endpoint, carrier, request, role, out);
        let interrupted = crate::interrupted();
        tokio::pin!(work, interrupted);
        let (mut is_done, mut is_told) = (false, false);
        let (mut silence, mut look) = (Silence::default(), tokio::time::interval(silence::LOOK_EVERY));
        let result = loop {
            if is_done && is_told && views.is_empty() {
                break Ok(());
            }
            tokio::select! {
                result = &mut work, if !is_done => match result {
                    Ok(()) => is_done = true,
                    Err(e) => break Err(connection.failure(e)),
                },
                Some(view) = views.recv() => report.take(view, true),
                answer = answers.record::<Record>(), if !is_told => match answer {
                    Ok(Some(view)) => report.take(view, false),
                    Ok(None) => is_told = true,
                    Err(e) => break Err(connection.failure(e)),
                },
                _ = look.tick() => connection.watch(&mut silence),
                () = &mut interrupted => break Err(Failure::Interrupted("")),
            }
        };
        while let Ok(view) = views.try_recv() {
            report.take(view, true);
        }
        let routes = connection.session.routes();
        let broken = result.as_ref().err();
        let reported = report.finish(endpoint.stats().memory.peak as u64, &connection.named(routes), broken);
        drop(ask);
        match result {
            Ok(()) => connection.close().await,
            Err(_) => connection.leave(),
        }
        result.and(reported)
    }
}
