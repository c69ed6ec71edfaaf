//! Mechanisms that can be switched off, to show what each is worth (P26). The crate's own tests switch off one for one story. Programs built with the feature
//! `ablation` switch any off, for all nodes of the process ([`crate::ablation`]). In all other builds [`is_off`] is the constant `false`.

/// The enumeration, and the names and descriptions of its members: one text for both.
macro_rules! mechanisms {
    ($($(#[doc = $what:literal])+ $name:ident,)+) => {
        /// What can be switched off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(dead_code)]
        pub(crate) enum Mechanism {
            $($(#[doc = $what])+ $name,)+
        }

        /// Each with what it does, in the order of the enumeration.
        #[cfg(any(test, feature = "ablation"))]
        pub(crate) const ALL: &[(Mechanism, &str, &str)] = &[$((Mechanism::$name, stringify!($name), concat!($($what),+)),)+];
    };
}

mechanisms! {
    /// Coded packets too long for a path that shrank are cut in two (P5).
    Fragments,
    /// A path that swallows large packets is noticed (P5).
    BlackHoleDetection,
    /// Larger datagrams are probed for (P5).
    MtuProbes,
    /// The keys of neighbouring epochs stay usable (P3).
    NeighbouringEpochs,
    /// Strangers beyond a rate get a cookie instead of work (P19).
    Cookies,
    /// A receiver's window covers what a longer link further up takes to repair (P13, P15).
    DistantHoles,
    /// Where congestion control is off, an acknowledged packet pays for one repair (P13).
    PaidRepairs,
    /// CREDIT and RANK are sent (P9, P15).
    FlowReports,
    /// What was lost of the receiver's refusals is said again (P9).
    RefusalRepetition,
    /// What was inferred from a window repair is not known when the receiver refuses the repair (P9).
    RefusedInference,
    /// An arrival rides in several acknowledgements (P8).
    AckRepetition,
    /// The first time-outs without an answer send two packets each (P10).
    SecondProbe,
    /// While nothing is acknowledged, more may be in flight (P8).
    SilentWindow,
    /// Where a handshake took long, as slow links make it, both ends wait for longer, and less is sent at first (P11, P19).
    SlowPaths,
    /// Small packets between the PTOs of a path from which no answer comes.
    SilenceProbes,
    /// Tail probes (P4, P10).
    TailProbes,
    /// First flights that no answer came to become smaller (P5).
    SmallFirstFlights,
    /// Lost handshake packets are sent again (P19).
    HandshakeRepetition,
    /// The initiator shows itself several times until the responder was heard (P19).
    Confirmation,
    /// Packets that were opened before are dropped (P3).
    ReplayWindow,
    /// The reordering window follows the path (P10).
    ReorderingWindow,
    /// CLOSE is repeated to a neighbour that keeps sending.
    CloseRepetition,
    /// A link says three times at once that it closes.
    CloseCopies,
    /// Marks that do not arrive end marking (P8).
    EcnValidation,
    /// What never left for a receiver of an object is made up for when there is nothing else to send.
    MissedPackets,
    /// Relays make up missing rank (P14).
    Recoding,
    /// Relays of blind streams send combinations (P14).
    BlindRecoding,
    /// Relays grant what the next link carries (P15).
    RelayCredit,
    /// A relay grants a flow no more than its memory has room for (P15).
    RelayMemory,
    /// Relays drop what is too late (P17).
    RelayLifetimes,
    /// Flows are opened again when their route breaks (P14, P17).
    Reopening,
    /// A flow with a lifetime that comes by another route leaves out what its source does not have any more.
    ReopeningSkips,
    /// Sealed packets are checked before they enter the basis (P16).
    PollutionCheck,
    /// Ends of sealed flows are believed from the far end's session only (P16).
    FarEnds,
    /// Only the source of a flow opens it again (P16).
    OpeningProofs,
    /// A control flow belongs to the hop by which its handshake came, until keys prove whose it is (P16).
    HandshakeOwners,
    /// Handshakes of relayed sessions are paid for by their link, and by their end below it (P19).
    OpenerTokens,
    /// Hosts of one network share what handshakes may cost (P19).
    NetworkTokens,
    /// A word that a session is unknown is a reason to ask, and ends nothing (docs/spec/session.md 8.5).
    QuestionsToEnds,
    /// Keys of relayed sessions are renewed (P3).
    SessionRenewal,
    /// Sessions whose packets are altered or do not arrive take another route (P16).
    RouteAvoidance,
    /// Idle flows leave their memory to others (P15).
    Lending,
    /// A flow at rest owns no more than its tables take (P15).
    RestingFlows,
    /// Flows of one neighbour take no more than a part of what others leave (P15).
    FairFloors,
    /// Repair on the fate of each packet; what is left is the receiver's word on blocks (P9).
    LossFeedback,
    /// A path moves to the address that the far end has moved to (P7).
    Migration,
    /// It moves only when the far end has answered from there, and the old address does not (P19).
    AddressValidation,
    /// A receiver whose data cease shows itself (P7, P19).
    GapProbes,
    /// What was learnt of the old path is forgotten (P7).
    FreshPathState,
    /// Packet numbers are completed from the low 32 bits (P3).
    NumberExpansion,
    /// Links with sessions that say nothing are kept alive (P23).
    KeepAlive,
    /// Combinations over the last packets reach over batch boundaries (P4).
    WindowSpans,
    /// Ordered datagrams are protected from spare rate though there is time for feedback.
    OrderedProtection,
    /// Protection of ordered datagrams yields to data that wait, but for what pauses pay for.
    IdleShare,
    /// Batches of ordered datagrams that grow are not protected before they are whole.
    GrowingBatches,
    /// A path of which nothing is known is thought to lose something.
    UnknownLoss,
    /// Ordered datagrams of small flows are protected whatever waits.
    SmallOrdered,
    /// Datagrams for which there is time for feedback are protected when nothing else is to be sent, not before what is new.
    PatientDatagrams,
    /// Datagrams for which there is no time for feedback press those after them for two round trips, not for as long as the flow goes on.
    UrgencyEnds,
    /// What repairs of datagrams that were lost before add depends on their lifetime.
    LifetimeLeft,
    /// Relays protect small flows while capacity is spare.
    RelayedProtection,
    /// What is old makes room in a queue of datagrams that stands.
    StandingQueues,
    /// Children of a tree that lag miss what they have no room for (object.md 6).
    SkippingChildren,
    /// Blocks that lack something get fresh packets of the outer code (object.md 4).
    FreshPackets,
    /// Links have more paths than one (multipath.md 2).
    Paths,
    /// What a busy host did not send in time is made up for, and says nothing about the path (decision 22).
    LateHosts,
    /// The first flight is measured over the time in which it left, not from a round trip before its first answer (P11).
    FirstFlight,
    /// Start-up goes by pulses, four times the rate for an eighth of a round trip (P11).
    Pulses,
    /// Delay that varies from the first round trips on does not end start-up (P12).
    StartupUnrest,
    /// What made the RTT fall at first is forgotten where the application has little to send for long (P12).
    FadingUnrest,
    /// A path that becomes longer again while our rate falls is a queue of cross traffic (P12d).
    CreepingQueues,
    /// A queue that comes back longer than our own kind leaves it is that of cross traffic, however often it falls in between (P12d).
    RecurringQueues,
    /// A flow that came to a queue soon measures which part of the delay is the path's own (P12).
    FirstLook,
    /// What was taken for a longer path and loses two fifths was a full queue (P12d).
    FullQueues,
    /// Handshakes name the process, and what an earlier one of it began is over (docs/spec/session.md 8.5).
    RestartEpochs,
    /// A session of which nothing arrives for the idle timeout is over, whatever relays go on sending (docs/spec/session.md 8.5).
    SilentSessions,
    /// A base loss of which the packets of one pool show less than half falls to it (P12b).
    StaleBaseLoss,
    /// Beside an unresponsive flow half of what the path carries is held (P12d).
    HeldHalf,
    /// A target that losses have lowered does not take a queue of our own kind for a longer path (P12d).
    OwnKindsQueues,
    /// A flow that takes the path's own loss for congestion is backed off from when it pushes (P12d).
    BackingOff,
    /// Repairs that were lost before are the safer the less time is left until the window halts at their batch (P13).
    TimeLeft,
    /// Repairs of a flow that began lately are safer, so that its reader is soon at the path's rate (P13).
    YoungFlow,
    /// Flows that share a queue agree by what it usually is, the sooner the longer their RTT (P7).
    Agreement,
    /// What passes between two bursts of an application is part of neither: each is measured by itself.
    BurstsAlone,
    /// Only an application that pauses may try in a burst more than is known.
    PausedBursts,
    /// Paths that meet in one bottleneck take the share of one flow there (multipath.md 5).
    Coupling,
    /// Flows over relays take several routes at once (multipath.md 6).
    Spreading,
    /// Flows of datagrams with a lifetime over relays do, too.
    SpreadDatagrams,
    /// Datagrams go by no route that would bring them too late.
    TimelyRoutes,
    /// What a route owes for too long goes by another as well.
    LateCopies,
    /// Parts of one flow take the turns of one where they meet.
    SharedTurns,
    /// A neighbour's flows that leave by one link share what one neighbour may send there.
    SharesOfOrigins,
    /// A path that falls silent gives what it carried to the others (multipath.md 4).
    SilentPaths,
}

#[cfg(not(any(test, feature = "ablation")))]
pub(crate) const fn is_off(_: Mechanism) -> bool {
    false
}

#[cfg(all(feature = "ablation", not(test)))]
pub(crate) fn is_off(mechanism: Mechanism) -> bool {
    is_in(&OFF, mechanism as usize)
}

/// A bit for each mechanism, by its place in [`ALL`].
#[cfg(any(test, feature = "ablation"))]
pub(crate) type Set = [core::sync::atomic::AtomicU64; ALL.len().div_ceil(64)];

/// What is off in this process.
#[cfg(any(test, feature = "ablation"))]
pub(crate) static OFF: Set = [const { core::sync::atomic::AtomicU64::new(0) }; ALL.len().div_ceil(64)];

#[cfg(any(test, feature = "ablation"))]
pub(crate) fn is_in(set: &Set, place: usize) -> bool {
    set[place / 64].load(core::sync::atomic::Ordering::Relaxed) >> (place % 64) & 1 == 1
}

#[cfg(test)]
thread_local! {
    static OFF_HERE: core::cell::Cell<Option<Mechanism>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_off(mechanism: Mechanism) -> bool {
    OFF_HERE.get() == Some(mechanism)
}

/// Runs `story` with one mechanism switched off.
#[cfg(test)]
pub(crate) fn without<T>(mechanism: Mechanism, story: impl FnOnce() -> T) -> T {
    OFF_HERE.set(Some(mechanism));
    let result = story();
    OFF_HERE.set(None);
    result
}

#[cfg(not(test))]
pub(crate) const fn first_number() -> u64 {
    0
}

#[cfg(test)]
thread_local! {
    static FIRST: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// The first packet number of every path: 0 but in tests (P3).
#[cfg(test)]
pub(crate) fn first_number() -> u64 {
    FIRST.get()
}

/// Runs `story` with packet numbers from `first` on.
#[cfg(test)]
pub(crate) fn numbered_from<T>(first: u64, story: impl FnOnce() -> T) -> T {
    FIRST.set(first);
    let result = story();
    FIRST.set(0);
    result
}
