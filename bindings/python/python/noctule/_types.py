"""What calls tell: how things ended, and what was counted."""

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
    """Words for people, perhaps those of the far end."""
    is_remote: bool
    """The far end closed."""
    description: str
    """All of it in one line."""

    @property
    def is_clean(self) -> bool:
        """Nothing went wrong."""
        return self.code == "no_error" and self.application == 0

    def __str__(self) -> str:
        return self.description


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    reason: CloseReason
    """Why it ended."""
    all_delivered: bool
    """Everything that this side sent reliably is known to be at the far end."""
    all_received: bool
    """Everything that the far end says it sent reliably was received here."""


@dataclass(frozen=True)
class FlowStats:
    """Counts of flows, one or a sum of many, in one direction."""

    app_bytes: int
    """Bytes that the application handed over, or was handed."""
    messages: int
    """Messages sent or handed over."""
    expired_messages: int
    """Messages given up because their lifetime ended, or cancelled."""
    source_packets: int
    """Packets sent uncoded, or received or recovered."""
    repair_packets: int
    """Coded packets sent or received."""
    decoded_packets: int
    """Packets that were recovered by decoding."""
    redundant_packets: int
    """Coded packets that brought nothing new."""
    outstanding_packets: int
    """Packets sent and not known to be there."""
    memory: int
    """Bytes held now."""


@dataclass(frozen=True)
class PathStats:
    """One path: a pair of UDP addresses. Times are in seconds, rates in bits per second."""

    remote: tuple[str, int]
    """The far address and port."""
    standing: str
    """What the path is fit for now, such as ``open``."""
    mtu: int
    """Largest UDP payload that is known to pass, in bytes."""
    rtt: float
    """Smoothed round-trip time."""
    min_rtt: float
    """Least round-trip time of late."""
    loss: float
    """Part of the packets that is lost, 0 to 1."""
    delivery_rate: float
    """What arrives."""
    in_flight: int
    """Bytes sent, neither acknowledged nor lost."""
    congestion_window: int
    """Bytes that may be in flight."""
    congestion_state: str
    """What the congestion control is doing."""
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
    """What a session knows."""

    paths: tuple[PathStats, ...]
    """The paths that it goes over."""
    sent: FlowStats
    """Sums over all flows that this side sends or has sent."""
    received: FlowStats
    """Sums over all flows that this side receives or has received."""
    handshake_time: float
    """How long the handshake took, in seconds."""
    is_plaintext: bool
    """Nothing is encrypted."""

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
    """What an endpoint's sockets have done, and what it holds."""

    sent_datagrams: int
    """Datagrams handed to the system."""
    sent_bytes: int
    """Bytes of them."""
    received_datagrams: int
    """Datagrams taken from the system."""
    received_bytes: int
    """Bytes of them."""
    memory_used: int
    """Bytes that sessions and flows hold."""
    memory_limit: int
    """Bytes that they may hold."""
