"""Pairs of sessions over loopback. Every wait is bounded: a test that hangs is a test that fails."""

import asyncio
import faulthandler
from collections.abc import AsyncIterator

import noctule
import pytest

#: Seconds after which a test has failed; none of them should take a tenth of it.
PATIENCE = 120


@pytest.fixture(autouse=True)
def _bounded():
    """A call that hangs ends the run, and where it hangs is shown."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def identity() -> noctule.Identity:
    return noctule.Identity.generate()


class Pair:
    """Two ends of a session, and the endpoint of the one that was called."""

    def __init__(self, server: noctule.Endpoint, ours: noctule.Session, theirs: noctule.Session) -> None:
        self.server = server
        self.ours = ours
        self.theirs = theirs


async def make_pair(identity: noctule.Identity, **options) -> Pair:
    server = noctule.listen("127.0.0.1:0", authorised=None, identity=identity, **options)
    accepting = asyncio.create_task(server.accept())
    ours = await noctule.connect(f"127.0.0.1:{server.port}", key=identity.public_key)
    theirs = await accepting
    assert theirs is not None
    return Pair(server, ours, theirs)


@pytest.fixture
async def pair(identity: noctule.Identity) -> AsyncIterator[Pair]:
    made = await make_pair(identity)
    yield made
    made.ours.abort()
    await made.server.close()


async def stream_pair(pair: Pair, **options) -> tuple[noctule.Stream, noctule.Stream]:
    """A stream that this end opened, and the far end's view of it; one byte has gone by it."""
    ours = pair.ours.open_stream(**options)
    ours.write(b"!")
    theirs = await pair.theirs.accept_stream()
    assert await theirs.readexactly(1) == b"!"
    return ours, theirs


async def flow_pair(pair: Pair, **options) -> tuple[noctule.MessageSender, noctule.MessageReceiver]:
    """A flow of messages and its receiving end; message 0 has gone by it."""
    sender = pair.ours.open_messages(**options)
    await sender.send(b"!")
    receiver = await pair.theirs.accept_messages()
    first = await receiver.recv()
    assert first is not None and (first.id, first.data) == (0, b"!")
    return sender, receiver
