"""noctule: an open network-coded transport for lossy links, for asyncio.

``connect`` opens a session, ``listen`` takes those of others; a session carries streams (``open_stream``, ``accept_stream``), flows of messages
(``open_messages``, ``accept_messages``) and datagrams. The same without an event loop is in ``noctule.blocking``.
"""

from ._core import Identity, Message, PublicKey, __version__, congestion_controls
from ._endpoint import Connecting, Endpoint, connect, listen
from ._errors import (
    BindError,
    ConnectError,
    Error,
    FlowClosed,
    IncompleteReadError,
    LimitError,
    MessageTooLarge,
    SessionClosed,
    StreamReset,
    StreamStopped,
    UsageError,
)
from ._messages import MessageReceiver, MessageSender
from ._session import Session
from ._stream import Stream
from ._types import CloseReason, EndpointStats, FlowStats, Outcome, PathStats, SessionStats

__all__ = [
    "BindError",
    "CloseReason",
    "ConnectError",
    "Connecting",
    "Endpoint",
    "EndpointStats",
    "Error",
    "FlowClosed",
    "FlowStats",
    "Identity",
    "IncompleteReadError",
    "LimitError",
    "Message",
    "MessageReceiver",
    "MessageSender",
    "MessageTooLarge",
    "Outcome",
    "PathStats",
    "PublicKey",
    "Session",
    "SessionClosed",
    "SessionStats",
    "Stream",
    "StreamReset",
    "StreamStopped",
    "UsageError",
    "__version__",
    "congestion_controls",
    "connect",
    "listen",
]
