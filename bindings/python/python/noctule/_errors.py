"""The exceptions: a small hierarchy below :class:`Error`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._core import PublicKey
    from ._types import CloseReason, Outcome


class Error(Exception):
    """Base of everything that noctule raises, wrong arguments excepted (``ValueError``, ``TypeError``)."""


class UsageError(Error, RuntimeError):
    """A call does not fit the object: writing after ``finish()``, reading a stream that only sends."""


class LimitError(Error):
    """Too many flows or sessions, or a stream longer than the caller takes."""


class BindError(Error, OSError):
    """An endpoint could not be opened.

    ``kind``: ``in_use``, ``permission``, ``not_available``, ``config`` or ``io``.
    """

    kind: str

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class ConnectError(Error, ConnectionError):
    """A session could not be opened.

    ``kind`` says why:

    - ``unreachable``: no answer came in time; ``nobody_listens``: the host says that the port is closed;
    - ``local``: this host cannot send there; ``prohibited``: a router said no; ``family``: wrong address family;
    - ``wrong_key``: another key answered, which is ``found``; ``not_authorised``: the far end does not let this identity in;
    - ``version_mismatch``, ``refused`` and ``failed``: see ``reason``;
    - ``resolve``, ``no_address``, ``syntax``: the host name is unknown, has no address, or is not ``HOST:PORT``;
    - ``limit``: too many sessions here; ``endpoint_closed``: the endpoint was closed.
    """

    kind: str
    expected: PublicKey | None
    found: PublicKey | None
    reason: CloseReason | None

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        expected: PublicKey | None = None,
        found: PublicKey | None = None,
        reason: CloseReason | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.expected = expected
        self.found = found
        self.reason = reason


class SessionClosed(Error, ConnectionError):
    """The session is over; ``outcome`` says how it ended, ``reason`` why."""

    outcome: Outcome

    def __init__(self, message: str, *, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome

    @property
    def reason(self) -> CloseReason:
        """Why it ended."""
        return self.outcome.reason


class FlowClosed(Error, ConnectionError):
    """A stream or a flow of messages ended before its time; ``reason`` says why."""

    reason: CloseReason

    def __init__(self, message: str, *, reason: CloseReason) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def code(self) -> int:
        """The number that the other side's application gave."""
        return self.reason.application


class StreamReset(FlowClosed):
    """The sender gave the stream, or the flow of messages, up."""


class StreamStopped(FlowClosed):
    """The receiver wants no more of the stream, or of the flow of messages."""


class MessageTooLarge(Error, ValueError):
    """A message of ``size`` bytes is more than the far end takes, which is ``limit``; nothing was sent."""

    size: int
    limit: int

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class IncompleteReadError(Error, asyncio.IncompleteReadError):
    """The stream ended before ``expected`` bytes were there; ``partial`` are those that were."""

    def __init__(self, partial: bytes, expected: int) -> None:
        asyncio.IncompleteReadError.__init__(self, partial, expected)
