//! How the two ends of a relayed session agree on its keys: Noise end to end, in the first source packets of the control flows (P19, P20).
//!
//! Pure steps from packet to packet; the coded flows below deliver each packet, and repeat it hop by hop. `docs/spec/session.md` §3 has the bytes.

use crate::crypto::{
    CryptoError, Established, Initiator, PreSharedKeys, PublicKey, Responder, ResponderStep, SESSION_OVERHEAD, SecretKey, SessionKeys,
    choose_cipher, preferred_ciphers,
};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::SessionKey;
use crate::session::MIN_SYMBOL;
use crate::wire::packet::{Pattern, VERSION};
use crate::wire::params::Cipher;
use crate::wire::varint::{self, Reader, emit_prefixed};
use rand_chacha::ChaCha12Rng;
use std::net::IpAddr;

/// Packets at the front of a control flow that may be handshake packets.
pub const MAX_LEAD: u64 = 2;

/// The keys of both ends: part of the prologue, so that no relay can lead a session elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Address of the side that opens the session.
    pub opener: IpAddr,
    /// Address of the destination.
    pub acceptor: IpAddr,
}

/// What this node brings to the handshakes of its sessions.
#[derive(Clone, Copy, Debug)]
pub struct Credentials<'a> {
    /// Its static key.
    pub identity: &'a SecretKey,
    /// Key that both ends of a session share, if they do.
    pub psk: Option<&'a [u8; 32]>,
    /// This process among all that have had this identity.
    pub restart_epoch: u64,
}

/// The outcome at either end.
#[derive(Debug)]
pub struct Secured {
    /// Keys of both directions.
    pub keys: SessionKeys,
    /// The far end's static key, proven.
    pub peer: PublicKey,
    /// Largest symbol on the route to the far end, as the far end saw it.
    pub symbol: Option<u16>,
    /// The far end's process, if it says so.
    pub restart_epoch: Option<u64>,
    /// Opener, XX: packet 1 of its control flow, which the acceptor needs before anything else.
    pub third: Option<Vec<u8>>,
}

/// Why a handshake did not end with keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A message that the owner of the far end's key did not make: it is dropped, and the true one still counts.
    Forged,
    /// The session cannot be.
    Fatal(CloseReason),
}

fn fatal(code: Code, text: impl Into<crate::far_text::FarText>) -> Failure {
    Failure::Fatal(CloseReason::local(code, Layer::Session, text))
}

impl From<CryptoError> for Failure {
    fn from(e: CryptoError) -> Self {
        match e {
            CryptoError::Authentication | CryptoError::Malformed => Self::Forged,
            CryptoError::WrongKey { expected, actual } => {
                fatal(Code::WrongKey, format!("the destination has the key {actual}, not {expected}"))
            }
            other => fatal(other.code(), other.to_string()),
        }
    }
}

/// Parameters in the payloads of the handshake's messages.
mod id {
    pub const CIPHERS: u64 = 0x01;
    pub const SYMBOL: u64 = 0x02;
    pub const REFUSAL: u64 = 0x03;
    pub const RESTART_EPOCH: u64 = 0x04;
    /// Ids `31 n + 27` are never registered (P1).
    pub const GREASE: u64 = 27;
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    ciphers: Vec<Cipher>,
    symbol: Option<u16>,
    refusal: Option<u64>,
    restart_epoch: Option<u64>,
}

impl Parameters {
    fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut number = |id: u64, value: u64| {
            varint::emit(&mut out, id);
            varint::emit(&mut out, varint::size(value) as u64);
            varint::emit(&mut out, value);
        };
        if let Some(symbol) = self.symbol {
            number(id::SYMBOL, symbol.into());
        }
        if let Some(code) = self.refusal {
            number(id::REFUSAL, code);
        }
        if let Some(epoch) = self.restart_epoch {
            number(id::RESTART_EPOCH, epoch);
        }
        if !self.ciphers.is_empty() {
            varint::emit(&mut out, id::CIPHERS);
            emit_prefixed(&mut out, &self.ciphers.iter().map(|c| *c as u8).collect::<Vec<_>>());
        }
        varint::emit(&mut out, id::GREASE);
        emit_prefixed(&mut out, &[0x5a]);
        out
    }

    fn parse(payload: &[u8]) -> Option<Self> {
        let mut r = Reader::new(payload);
        let mut this = Self::default();
        let number = |value: &[u8]| {
            let mut r = Reader::new(value);
            r.varint().ok().filter(|_| r.is_empty())
        };
        while !r.is_empty() {
            let (id, value) = (r.varint().ok()?, r.prefixed().ok()?);
            match id {
                id::CIPHERS if this.ciphers.is_empty() => this.ciphers = value.iter().filter_map(|c| Cipher::from_u8(*c)).collect(),
                id::SYMBOL if this.symbol.is_none() => {
                    let symbol = u16::try_from(number(value)?).ok()?;
                    this.symbol = Some(symbol).filter(|t| usize::from(*t) >= MIN_SYMBOL + SESSION_OVERHEAD);
                    this.symbol?;
                }
                id::REFUSAL if this.refusal.is_none() => this.refusal = Some(number(value)?),
                id::RESTART_EPOCH if this.restart_epoch.is_none() => this.restart_epoch = Some(number(value)?),
                id::CIPHERS | id::SYMBOL | id::REFUSAL | id::RESTART_EPOCH => return None,
                _ => {} // P1
            }
        }
        Some(this)
    }
}

/// `"noctule session" || version || pattern || session || opener's address || acceptor's address` (P1).
fn prologue(pattern: Pattern, session: SessionKey, ends: &Ends) -> Vec<u8> {
    let mut out = b"noctule session".to_vec();
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.push(pattern as u8);
    out.extend_from_slice(&session.0.to_be_bytes());
    for address in [ends.opener, ends.acceptor] {
        match address {
            IpAddr::V4(v4) => {
                out.push(4);
                out.extend_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                out.push(16);
                out.extend_from_slice(&v6.octets());
            }
        }
    }
    out
}

/// The side that opens a session, after its first packet.
#[derive(Debug)]
pub struct Opening {
    initiator: Initiator,
    pattern: Pattern,
    restart_epoch: u64,
    refused_by: Option<(PublicKey, Option<u64>)>,
}

impl Opening {
    /// Begins; the second result is packet 0 of the opener's control flow. With `is_probe` the far key is learnt even if one is expected: the answer to
    /// the question which key is there, when what was written for `peer` cannot be read.
    ///
    /// # Errors
    /// `Fatal` only, a defect.
    pub fn start(
        own: Credentials<'_>,
        peer: Option<PublicKey>,
        is_probe: bool,
        session: SessionKey,
        ends: &Ends,
        rng: &mut ChaCha12Rng,
    ) -> Result<(Self, Vec<u8>), Failure> {
        let pattern = Initiator::pattern_for(peer.filter(|_| !is_probe), own.psk);
        // Any host on the route can read what the first message of XX says.
        let restart_epoch = (lead_of(pattern) == 1).then_some(own.restart_epoch);
        let payload = Parameters { ciphers: preferred_ciphers().into_iter().collect(), restart_epoch, ..Default::default() }.emit();
        let prologue = prologue(pattern, session, ends);
        let (initiator, message) = Initiator::start_with(pattern, own.identity, peer, own.psk, &prologue, &payload, rng)?;
        let mut packet = VERSION.to_be_bytes().to_vec();
        packet.push(pattern as u8);
        packet.extend_from_slice(&message);
        Ok((Self { initiator, pattern, restart_epoch: own.restart_epoch, refused_by: None }, packet))
    }

    /// Handshake packets at the front of the opener's control flow.
    pub fn lead(&self) -> u64 {
        lead_of(self.pattern)
    }

    /// The far end that has refused the session, proven, and its process.
    pub fn refused_by(&self) -> Option<(PublicKey, Option<u64>)> {
        self.refused_by
    }

    /// Reads packet 0 of the acceptor's control flow, whose FLOW_OPEN arrived with symbols of at most `symbol` bytes.
    ///
    /// # Errors
    /// `Fatal`: another key than the expected one, or the acceptor's refusal.
    pub fn finish(&mut self, message: &[u8], symbol: u16) -> Result<Secured, Failure> {
        let last = Parameters { symbol: Some(symbol), restart_epoch: Some(self.restart_epoch), ..Default::default() }.emit();
        let mut established = self.initiator.finish(message, &last)?;
        let parameters =
            Parameters::parse(&established.payload).ok_or_else(|| fatal(Code::Parameter, "the answer's parameters are malformed"))?;
        if let Some(code) = parameters.refusal {
            self.refused_by = Some((established.peer, parameters.restart_epoch));
            let code = Code::from_u64(code).unwrap_or(Code::Internal);
            return Err(Failure::Fatal(CloseReason { is_remote: true, ..CloseReason::local(code, Layer::Session, "") }));
        }
        let [cipher] = parameters.ciphers[..] else { return Err(fatal(Code::Parameter, "the answer names no cipher")) };
        if !preferred_ciphers().contains(&cipher) {
            return Err(fatal(Code::Parameter, "the answer names a cipher that was not offered"));
        }
        let third = established.third_message.take();
        let Parameters { symbol, restart_epoch, .. } = parameters;
        Ok(Secured { keys: SessionKeys::new(&established, cipher, true)?, peer: established.peer, symbol, restart_epoch, third })
    }
}

const fn lead_of(pattern: Pattern) -> u64 {
    match pattern {
        Pattern::Ik | Pattern::IkPsk2 => 1,
        Pattern::Xx | Pattern::XxPsk3 => 2,
    }
}

/// What answering leads to.
#[derive(Debug)]
pub struct Answer {
    /// Packet 0 of the acceptor's control flow.
    pub packet: Vec<u8>,
    /// Handshake packets at the front of the opener's control flow.
    pub lead: u64,
    /// How it goes on.
    pub step: AnswerStep,
}

/// See [`Answer`].
#[derive(Debug)]
pub enum AnswerStep {
    /// IK: keys stand. The opener's claim to its key holds only once a packet under these keys has come: its message may be a replay.
    Secured(Box<Secured>),
    /// XX: keys stand after packet 1.
    Waiting(Box<Waiting>),
    /// The answer says no; what ends the session is sealed like everything else.
    Refused(CloseReason, Box<Secured>),
}

/// The acceptor of XX, waiting for packet 1.
#[derive(Debug)]
pub struct Waiting {
    responder: Responder,
    cipher: Cipher,
}

/// Answers packet 0 of an opener's control flow, whose FLOW_OPEN arrived with symbols of at most `symbol` bytes. `may_open` says which keys may open a
/// session; in IK its refusal goes into the answer, in XX the session is closed once the key is known (by the caller).
///
/// # Errors
/// `Fatal` with the code for FLOW_REFUSED: another version, another key, a pre-shared key on one side only, rubbish.
pub fn answer(
    own: Credentials<'_>,
    session: SessionKey,
    ends: &Ends,
    packet: &[u8],
    symbol: u16,
    may_open: impl FnOnce(PublicKey) -> bool,
    rng: &mut ChaCha12Rng,
) -> Result<Answer, Failure> {
    let malformed = || fatal(Code::Handshake, "the first packet of a session is no handshake");
    let mut r = Reader::new(packet);
    if r.u32().map_err(|_| malformed())? != VERSION {
        return Err(fatal(Code::VersionMismatch, "the opener speaks another version"));
    }
    let pattern =
        r.u8().ok().and_then(|p| [Pattern::Ik, Pattern::Xx, Pattern::IkPsk2, Pattern::XxPsk3].into_iter().find(|known| *known as u8 == p));
    let pattern = pattern.ok_or_else(malformed)?;
    let wants_psk = matches!(pattern, Pattern::IkPsk2 | Pattern::XxPsk3);
    if wants_psk != own.psk.is_some() {
        return Err(fatal(Code::Handshake, "one end uses a pre-shared key, the other does not"));
    }
    let (mut cipher, mut refusal, epoch) = (Cipher::ChaCha20Poly1305, None, own.restart_epoch);
    let step = Responder::respond(
        own.identity,
        PreSharedKeys::one(own.psk),
        pattern,
        &prologue(pattern, session, ends),
        r.rest(),
        |peer, payload| {
            let no = |code, text| CloseReason::local(code, Layer::Session, text);
            let offered = Parameters::parse(payload).ok_or_else(|| no(Code::Parameter, "the opener's parameters are malformed"))?;
            let own: Vec<Cipher> = preferred_ciphers().into_iter().collect();
            cipher = choose_cipher(&offered.ciphers, &own, false).ok_or_else(|| no(Code::Parameter, "no common cipher"))?;
            if peer.is_some_and(|key| !may_open(key)) {
                refusal = Some(no(Code::NotAuthorised, "this key may not open sessions here"));
            }
            let code = refusal.as_ref().map(|r| r.code as u64);
            let restart_epoch = Some(epoch);
            Ok(Parameters { ciphers: vec![cipher], symbol: Some(symbol), refusal: code, restart_epoch }.emit())
        },
        rng,
    );
    let step = step.map_err(|e| match e {
        // Nothing but the static key decides whether the first message of IK can be read.
        CryptoError::Authentication if lead_of(pattern) == 1 => fatal(Code::WrongKey, "the session was opened for another key"),
        CryptoError::Refused(reason) => Failure::Fatal(reason),
        _ => malformed(),
    })?;
    let lead = lead_of(pattern);
    let (packet, step) = match step {
        ResponderStep::Waiting { reply, responder } => (reply, AnswerStep::Waiting(Box::new(Waiting { responder, cipher }))),
        ResponderStep::Established { reply, established } => {
            let secured = Box::new(secured(&established, cipher)?);
            let step = match refusal {
                Some(reason) => AnswerStep::Refused(reason, secured),
                None => AnswerStep::Secured(secured),
            };
            (reply, step)
        }
    };
    Ok(Answer { packet, lead, step })
}

fn secured(established: &Established, cipher: Cipher) -> Result<Secured, CryptoError> {
    let Parameters { symbol, restart_epoch, .. } = Parameters::parse(&established.payload).unwrap_or_default();
    Ok(Secured { keys: SessionKeys::new(established, cipher, false)?, peer: established.peer, symbol, restart_epoch, third: None })
}

impl Waiting {
    /// Reads packet 1 of the opener's control flow.
    ///
    /// # Errors
    /// `Forged`: the true one may still come.
    pub fn complete(&self, message: &[u8]) -> Result<Secured, Failure> {
        let established = self.responder.complete(message)?;
        Ok(secured(&established, self.cipher)?)
    }
}
