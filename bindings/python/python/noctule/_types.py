"""Results of calls: how sessions and flows ended, and statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CloseReason:
    """Why a session or a flow ended."""

    code: str
    """The registered code, such as ``no_error``, ``idle_timeout``, ``gone``, ``reset``."""
    layer: str
    """Where it arose: ``wire``, ``crypto``, ``link``, ``flow``, ``session`` or ``application``."""
    application: int
    """The application's own code, if it closed."""
    text: str
    """An explanation to read, perhaps written by the far end."""
    is_remote: bool
    """Whether the far end closed."""
    description: str
    """All of it in one line."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing went wrong."""
        return self.code == "no_error" and self.application == 0

    def __str__(self) -> str:
        return self.description


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    reason: CloseReason
    """Why it ended."""
    all_delivered: bool
    """Whether everything that this side sent reliably is known to be at the far end."""
    all_received: bool
    """Whether everything that the far end says it sent reliably was received here."""


@dataclass(frozen=True)
class FlowStats:
    """Counts of flows, one or a sum of many, in one direction."""

    app_bytes: int
    """Bytes that the application handed over, or was handed."""
    messages: int
    """Messages sent or handed over."""
    expired_messages: int
    """Messages that were cancelled, or given up because their lifetime ended."""
    source_packets: int
    """Packets sent uncoded, or received or recovered."""
    repair_packets: int
    """Coded packets sent or received."""
    decoded_packets: int
    """Packets that were recovered by decoding."""
    redundant_packets: int
    """Coded packets that were not innovative: they raised no rank."""
    outstanding_packets: int
    """Packets sent whose arrival is not known."""
    memory: int
    """Bytes held now."""


@dataclass(frozen=True)
class PathStats:
    """One path: a pair of UDP addresses. Times are in seconds, rates in bits per second."""

    remote: tuple[str, int]
    """The far address and port."""
    state: str
    """State of the path, such as ``open``."""
    mtu: int
    """Largest UDP payload that is known to pass, in bytes."""
    rtt: float
    """Smoothed round-trip time."""
    min_rtt: float
    """Smallest round-trip time that was measured recently."""
    loss: float
    """Part of the packets that is lost, 0 to 1."""
    delivery_rate: float
    """Delivery rate: bytes acknowledged per time, in bits per second."""
    in_flight: int
    """Bytes sent, neither acknowledged nor lost."""
    congestion_window: int
    """Bytes that may be in flight."""
    congestion_state: str
    """State of the congestion control."""
    sent_packets: int
    """Datagrams sent."""
    sent_bytes: int
    """Bytes sent, of UDP payload."""
    received_packets: int
    """Datagrams received."""
    received_bytes: int
    """Bytes received, of UDP payload."""
    lost_packets: int
    """Packets declared lost."""
    migrations: int
    """How often the path has moved to another address."""


@dataclass(frozen=True)
class SessionStats:
    """Statistics of a session."""

    paths: tuple[PathStats, ...]
    """The paths of its link."""
    sent: FlowStats
    """Sums over all flows that this side sends or has sent."""
    received: FlowStats
    """Sums over all flows that this side receives or has received."""
    handshake_time: float
    """How long the handshake took, in seconds."""
    is_plaintext: bool
    """Whether the link goes without encryption."""

    @classmethod
    def _of(cls, counted: dict[str, Any]) -> SessionStats:
        return cls(
            paths=tuple(PathStats(**path) for path in counted["paths"]),
            sent=FlowStats(**counted["sent"]),
            received=FlowStats(**counted["received"]),
            handshake_time=counted["handshake_time"],
            is_plaintext=counted["is_plaintext"],
        )


@dataclass(frozen=True)
class EndpointStats:
    """Statistics of an endpoint: its sockets and its memory."""

    sent_datagrams: int
    """Datagrams handed to the system."""
    sent_bytes: int
    """Bytes of them."""
    received_datagrams: int
    """Datagrams taken from the system."""
    received_bytes: int
    """Bytes of them."""
    memory_used: int
    """Memory that sessions and flows use, in bytes."""
    memory_limit: int
    """Memory that they may use, in bytes."""
