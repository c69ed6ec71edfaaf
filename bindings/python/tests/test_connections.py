"""Opening and closing: keys, names, ports, reasons, and what is left afterwards."""

import asyncio
import gc
import os
import socket
import threading
import weakref

import noctule
import pytest
from conftest import flow_pair, make_pair, stream_pair


async def test_another_key_than_the_pinned_one_is_refused(identity):
    async with noctule.listen("127.0.0.1:0", authorised=None, identity=identity) as server:
        other = noctule.Identity.generate().public_key
        with pytest.raises(noctule.ConnectError) as told:
            await noctule.connect(f"127.0.0.1:{server.port}", key=other, connect_timeout=1)
        assert (told.value.kind, told.value.expected, told.value.found) == ("wrong_key", other, identity.public_key)
        assert isinstance(told.value, (ConnectionError, noctule.Error))


async def test_only_authorised_keys_get_in(identity):
    friend, stranger = noctule.Identity.generate(), noctule.Identity.generate()
    async with noctule.listen("127.0.0.1:0", authorised=[friend.public_key], identity=identity) as server:
        address = f"127.0.0.1:{server.port}"
        with pytest.raises(noctule.ConnectError) as told:
            await noctule.connect(address, key=identity.public_key, identity=stranger)
        assert told.value.kind == "not_authorised"
        async with noctule.connect(address, key=str(identity.public_key), identity=friend):
            session = await server.accept()
            assert session is not None and session.peer_key == friend.public_key
            assert str(friend.public_key) in repr(session)


async def test_a_shared_key_is_needed_on_both_sides(identity):
    key = "shared-" + "a" * 56
    with pytest.raises(ValueError, match="shared_key"):
        noctule.listen("127.0.0.1:0", authorised=None, identity=identity, shared_key=key)


async def test_hosts_and_ports_that_do_not_exist_are_told_apart(identity):
    key = identity.public_key
    with pytest.raises(noctule.ConnectError) as told:
        await noctule.connect("no-such-host.invalid:4242", key=key)
    assert told.value.kind == "resolve" and "no-such-host.invalid" in str(told.value)
    with pytest.raises(noctule.ConnectError) as told:
        await noctule.connect("no-port", key=key)
    assert told.value.kind == "syntax"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(noctule.ConnectError) as told:
        await noctule.connect(f"127.0.0.1:{port}", key=key)
    assert told.value.kind == "nobody_listens"


async def test_silence_ends_an_attempt_after_its_time(identity):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(noctule.ConnectError) as told:
            await noctule.connect(f"127.0.0.1:{silent.getsockname()[1]}", key=identity.public_key, connect_timeout=0.3)
        assert told.value.kind == "unreachable"


async def test_a_port_that_is_taken_is_told(identity):
    async with noctule.listen("127.0.0.1:0", authorised=None, identity=identity) as server:
        with pytest.raises(noctule.BindError) as told:
            noctule.listen(f"127.0.0.1:{server.port}", authorised=None, identity=identity)
        assert told.value.kind == "in_use" and isinstance(told.value, OSError)
    with pytest.raises(noctule.BindError) as told:
        noctule.listen("192.0.2.1:0", authorised=None, identity=identity)
    assert told.value.kind == "not_available"


async def test_arguments_that_mean_nothing_are_refused(identity):
    key = identity.public_key
    for bad in ({"congestion": "fast"}, {"connect_timeout": -1}, {"idle_timeout": 0}, {"linger": float("nan")}, {"shared_key": "x"}):
        with pytest.raises(ValueError):
            noctule.connect("127.0.0.1:1", key=key, **bad)
    with pytest.raises(ValueError):
        noctule.connect("127.0.0.1:1", key=key, max_message=-1)
    for bad in (5, b"127.0.0.1:1", None):
        with pytest.raises(TypeError):
            noctule.connect(bad, key=key)
    for bad in (5, b"key", [key]):
        with pytest.raises(TypeError):
            noctule.connect("127.0.0.1:1", key=bad)
    for bad in ("", "short", str(key)[:-1], str(key)[:-1] + ("b" if str(key)[-1] == "a" else "a")):
        with pytest.raises(ValueError):
            noctule.connect("127.0.0.1:1", key=bad)
    with pytest.raises(TypeError):
        noctule.connect("127.0.0.1:1")  # the far end's key has to be given
    with pytest.raises(TypeError):
        noctule.listen("127.0.0.1:0", authorised=None, identity="key")
    with pytest.raises(TypeError):
        noctule.listen("127.0.0.1:0", authorised=str(key), identity=identity)
    for bad in ("localhost:0", "127.0.0.1", "127.0.0.1:99999", []):
        with pytest.raises(ValueError):
            noctule.listen(bad, authorised=None, identity=identity)


async def test_several_addresses_and_several_sessions_of_one_endpoint(identity):
    server = noctule.listen(["127.0.0.1:0", "127.0.0.2:0"], authorised=None, identity=identity)
    assert [host for host, _ in server.addresses] == ["127.0.0.1", "127.0.0.2"]
    client = noctule.Endpoint.client()
    for host, port in server.addresses:
        session = await client.connect(f"{host}:{port}", key=identity.public_key)
        assert session.remote_address == (host, port)
        assert await server.accept() is not None
    assert client.stats().sent_datagrams > 0
    await client.close()
    await server.close()
    assert await server.accept() is None
    with pytest.raises(noctule.ConnectError) as told:
        await client.connect("127.0.0.1:1", key=None)
    assert told.value.kind == "endpoint_closed"


async def test_reasons_and_codes_of_a_close_reach_the_other_side(pair):
    closing = asyncio.create_task(pair.ours.close(17, "enough"))
    outcome = await pair.theirs.wait_closed()
    assert (outcome.reason.application, outcome.reason.text, outcome.reason.is_remote, outcome.reason.is_clean) == (
        17,
        "enough",
        True,
        False,
    )
    await closing
    assert "enough" in str(pair.theirs.close_reason)
    with pytest.raises(noctule.SessionClosed) as told:
        await pair.theirs.accept_stream()
    assert told.value.reason.application == 17


async def test_everything_can_be_called_after_the_end(pair):
    ours, theirs = await stream_pair(pair)
    sender, receiver = await flow_pair(pair)
    await pair.ours.close(linger=0)
    again = await pair.ours.close(5, "a second time")
    assert again.reason.application == 0
    pair.ours.abort()
    pair.ours.set_congestion("cubic")
    assert pair.ours.stats().sent.messages == 1
    assert pair.ours.peer_key and pair.ours.close_reason is not None
    with pytest.raises(noctule.SessionClosed):
        pair.ours.open_stream()
    with pytest.raises(noctule.SessionClosed):
        pair.ours.open_messages()
    with pytest.raises(noctule.SessionClosed):
        pair.ours.send_datagram(b"x")
    await pair.theirs.wait_closed()
    for call in (
        pair.ours.accept_stream,
        pair.ours.accept_messages,
        pair.ours.recv_datagram,
        ours.read,
        ours.finish,
        theirs.read,
        lambda: sender.send(b"x"),
        sender.finish,
        receiver.recv,
    ):
        with pytest.raises((noctule.SessionClosed, noctule.FlowClosed)):
            await call()
    for thing in (ours, theirs, sender):
        thing.reset()
    for thing in (ours, theirs, receiver):
        thing.stop()


async def test_a_block_that_raises_aborts_its_session(identity):
    server = noctule.listen("127.0.0.1:0", authorised=None, identity=identity)
    with pytest.raises(ZeroDivisionError):
        async with noctule.connect(f"127.0.0.1:{server.port}", key=identity.public_key) as session:
            theirs = await server.accept()
            session.open_stream().write(bytes(1 << 20))
            1 / 0
    assert (await theirs.wait_closed()).reason.application == 1
    await server.close()


async def test_a_far_end_that_dies_is_noticed(identity):
    """A process that is killed says nothing more."""
    import sys

    program = (
        "import asyncio, sys, noctule\n"
        "async def main():\n"
        "    identity = noctule.Identity.generate()\n"
        "    server = noctule.listen('127.0.0.1:0', authorised=None, identity=identity)\n"
        "    print(server.port, identity.public_key, flush=True)\n"
        "    session = await server.accept()\n"
        "    await session.wait_closed()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    port, key = (await process.stdout.readline()).decode().split()
    session = await noctule.connect(f"127.0.0.1:{port}", key=key)
    process.kill()
    await process.wait()
    stream = session.open_stream()
    stream.write(b"anybody there?")
    with pytest.raises(noctule.SessionClosed) as told:
        await stream.read()
    assert told.value.reason.code in ("gone", "idle_timeout", "circuit_breaker") and not told.value.outcome.all_delivered


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def resident() -> int:
    """Bytes in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_thousand_connections_leave_nothing(identity):
    server = noctule.listen("127.0.0.1:0", authorised=None, identity=identity)
    address = f"127.0.0.1:{server.port}"

    async def serve():
        ends = set()
        async for session in server:
            end = asyncio.create_task(session.wait_closed())
            ends.add(end)
            end.add_done_callback(ends.discard)

    serving = asyncio.create_task(serve())

    async def rounds(n):
        for k in range(n):
            if k % 2:
                async with noctule.connect(address, key=identity.public_key) as session:
                    session.open_stream()
            else:
                session = await noctule.connect(address, key=identity.public_key)
                session.open_stream().write(b"forgotten")
                session.abort()
                del session

    async def settled():
        gc.collect()
        await server.wait_idle()
        # Drivers of sockets end on their own threads.
        for _ in range(100):
            if descriptors() <= least:
                break
            await asyncio.sleep(0.05)
        return descriptors(), threads(), resident()

    least = descriptors() + 2
    await rounds(200)
    first = await settled()
    await rounds(800)
    last = await settled()
    assert last[0] <= least and last[0] <= first[0] + 2, (least, first, last)
    assert last[1] <= first[1] + 1, (first, last)
    assert last[2] <= first[2] + (24 << 20), (first, last)
    await server.close()
    await serving


async def test_objects_that_nobody_awaits_go_away(pair):
    """Coroutines, attempts, streams and flows that are dropped are freed at once, without a cycle."""
    known = []

    def keep(thing):
        known.append(weakref.ref(thing))
        return thing

    gc.disable()
    try:
        keep(pair.ours.open_stream()).write(bytes(3 << 20))
        keep(pair.ours.open_messages())
        keep(noctule.connect("127.0.0.1:1", key=None))
        task = asyncio.create_task(keep(pair.ours.open_stream()).read())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del task
        keep(await make_pair(noctule.Identity.generate()))
        await asyncio.sleep(0)
        assert [ref() for ref in known] == [None] * len(known)
    finally:
        gc.enable()


async def test_an_attempt_that_is_cancelled_ends(identity):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        await noctule.Endpoint.client().close()  # the loop's own descriptors are there now
        before = descriptors()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_connect(f"127.0.0.1:{silent.getsockname()[1]}", identity), 0.1)
        for _ in range(100):
            if descriptors() <= before:
                break
            await asyncio.sleep(0.05)
        assert descriptors() <= before


async def _connect(address, identity):
    return await noctule.connect(address, key=identity.public_key)


async def test_threads_of_the_packet_loop_are_few(pair):
    assert threading.active_count() <= 3, "they are not Python's"
    assert threads() <= 12
