"""Arguments that the asyncio part and the blocking one have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal

from . import _core

#: The promise of a flow: everything arrives; a message arrives within its lifetime or not at all; bare datagrams.
Mode = Literal["brtp", "btp", "transparent"]
#: ``latency`` goes first, for up to half of the link.
TrafficClass = Literal["bulk", "latency"]
#: A length of time: seconds, or a ``timedelta``.
Seconds = float | timedelta


def seconds(value: Seconds) -> float:
    """As a number."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def optional_seconds(value: Seconds | None) -> float | None:
    """As a number, if it is one."""
    return None if value is None else seconds(value)


def public_key(key: _core.PublicKey | str) -> _core.PublicKey:
    """A key that may be given as its text."""
    if isinstance(key, str):
        return _core.PublicKey(key)
    if not isinstance(key, _core.PublicKey):
        raise TypeError(f"a key is a PublicKey or its text of 56 characters, not {type(key).__name__}")
    return key


def endpoint(
    addresses: str | Sequence[str],
    identity: _core.Identity | None,
    *,
    authorised: Iterable[_core.PublicKey | str] | None,
    shared_key: str | None,
    congestion: str,
    connect_timeout: Seconds,
    idle_timeout: Seconds,
    linger: Seconds,
    max_message: int,
    accept: bool,
) -> _core.Endpoint:
    """Opens the compiled part's endpoint."""
    if isinstance(authorised, (str, _core.PublicKey)):
        raise TypeError("authorised is a list of keys, or None for everybody")
    if max_message < 0:
        raise ValueError(f"max_message is a number of bytes, 0 or more: {max_message}")
    return _core.Endpoint(
        [addresses] if isinstance(addresses, str) else list(addresses),
        identity,
        {
            "authorised": None if authorised is None else [public_key(key) for key in authorised],
            "shared_key": shared_key,
            "congestion": congestion,
            "connect_timeout": seconds(connect_timeout),
            "idle_timeout": seconds(idle_timeout),
            "linger": seconds(linger),
            "max_message": max_message,
            "accept": accept,
        },
    )


def listening(
    addresses: str | Sequence[str],
    identity: _core.Identity,
    *,
    authorised: Iterable[_core.PublicKey | str] | None,
    shared_key: str | None,
    congestion: str,
    connect_timeout: Seconds,
    idle_timeout: Seconds,
    linger: Seconds,
    max_message: int,
) -> _core.Endpoint:
    """The same for one that others connect to."""
    if not isinstance(identity, _core.Identity):
        raise TypeError(f"identity is an Identity (Identity.load, Identity.generate), not {type(identity).__name__}")
    if not isinstance(addresses, str) and len(addresses) == 0:
        raise ValueError("listen() needs an address")
    return endpoint(
        addresses,
        identity,
        authorised=authorised,
        shared_key=shared_key,
        congestion=congestion,
        connect_timeout=connect_timeout,
        idle_timeout=idle_timeout,
        linger=linger,
        max_message=max_message,
        accept=True,
    )
