"""Messages, their lifetimes and priorities, and datagrams."""

import asyncio
from datetime import timedelta

import noctule
import pytest
from conftest import flow_pair, make_pair


async def test_messages_keep_their_borders_and_order(pair):
    sender, receiver = await flow_pair(pair, tag=3)
    assert (receiver.mode, receiver.tag) == ("brtp", 3)
    sizes = [0, 1, 1200, 5000, 100_000, 3_000_000, 7]

    async def send():
        for n, size in enumerate(sizes):
            assert await sender.send(bytearray([n]) * size) == n + 1
        await sender.finish()

    assert receiver.stats().messages == sender.stats().messages == 1
    sending = asyncio.create_task(send())
    got = [message async for message in receiver]
    await sending
    assert [(m.id, m.data) for m in got] == [(n + 1, bytes([n]) * size) for n, size in enumerate(sizes)]
    assert await receiver.recv() is None
    assert len(got[2]) == 1200 and bytes(got[1]) == b"\1" and "Message 2" in repr(got[1])
    match got[1]:
        case noctule.Message(data, number):
            assert (data, number) == (b"\1", 2)
    assert pair.ours.stats().sent.messages == pair.theirs.stats().received.messages == len(sizes) + 1


async def test_thousands_of_messages_arrive(pair):
    sender, receiver = await flow_pair(pair, ordered=False)

    async def send():
        for n in range(20_000):
            await sender.send(n.to_bytes(4, "big"))
        await sender.finish()

    sending = asyncio.create_task(send())
    got = {int.from_bytes(message.data, "big") async for message in receiver}
    await sending
    assert got == set(range(20_000))


async def test_a_message_whose_lifetime_ends_is_given_up(pair):
    """The far end does not read, so what does not fit waits; what has a short life is gone when there is room."""
    sender, receiver = await flow_pair(pair, mode="btp", ordered=False, lifetime=timedelta(seconds=30), traffic_class="latency")
    assert receiver.mode == "btp"
    block = bytes(1_000_000)
    sent = 0
    # How many fit depends on memory, and on how fast they leave.
    while pair.ours.stats().sent.expired_messages == 0 and sent < 400:
        await asyncio.wait_for(sender.send(block, lifetime=0.05), 10)
        sent += 1
    await asyncio.sleep(0.2)
    await sender.send(b"lasting", lifetime=60)
    finishing = asyncio.create_task(sender.finish())
    got = [message.data async for message in receiver]
    await finishing
    assert got[-1] == b"lasting" and len(got) < sent + 1
    assert pair.ours.stats().sent.expired_messages > 0


async def test_options_that_mean_nothing_are_refused(pair):
    with pytest.raises(ValueError, match="brtp, btp, transparent"):
        pair.ours.open_messages(mode="tcp")
    with pytest.raises(ValueError, match="traffic class"):
        pair.ours.open_messages(traffic_class="fast")
    for lifetime in (-1, 0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="lifetime"):
            pair.ours.open_messages(mode="btp", lifetime=lifetime)
    with pytest.raises(ValueError, match="tag"):
        pair.ours.open_messages(tag=(1 << 62) - 1)
    with pytest.raises(OverflowError):
        pair.ours.open_messages(tag=-1)
    sender = pair.ours.open_messages(mode="btp")
    with pytest.raises(noctule.UsageError, match="lifetime"):
        await sender.send(b"for ever?")
    with pytest.raises(OverflowError):
        await sender.send(b"x", lifetime=1, priority=256)
    with pytest.raises(TypeError):
        await sender.send("text", lifetime=1)


async def test_a_message_that_is_too_large_is_refused_with_both_numbers(identity):
    pair = await make_pair(identity, max_message=1000)
    sender = pair.ours.open_messages()
    with pytest.raises(noctule.MessageTooLarge) as told:
        await sender.send(bytes(1001))
    assert (told.value.size, told.value.limit) == (1001, 1000)
    assert await sender.send(bytes(1000)) == 0
    await sender.finish()
    pair.ours.abort()
    await pair.server.close()


async def test_a_message_can_be_withdrawn(pair):
    sender, receiver = await flow_pair(pair)
    numbers = []
    while True:
        try:
            numbers.append(await asyncio.wait_for(sender.send(bytes(1_000_000)), 0.2))
        except asyncio.TimeoutError:
            break
    assert sender.cancel(numbers[-1])
    assert not sender.cancel(0)
    finishing = asyncio.create_task(sender.finish())
    got = [message.id async for message in receiver]
    await finishing
    assert numbers[-1] not in got and got == numbers[:-1]


async def test_resets_and_stops_of_flows_are_told(pair):
    sender, receiver = await flow_pair(pair)
    sender.reset(4)
    with pytest.raises(noctule.StreamReset) as told:
        await receiver.recv()
    assert told.value.code == 4
    with pytest.raises(noctule.UsageError):
        await sender.send(b"x")
    sender, receiver = await flow_pair(pair)
    receiver.stop(5)
    with pytest.raises(noctule.StreamStopped) as told:
        while True:
            await sender.send(bytes(10_000))
    assert told.value.code == 5
    with pytest.raises(noctule.UsageError):
        await receiver.recv()


async def test_datagrams_go_both_ways(pair):
    assert pair.ours.send_datagram(b"ping")
    assert await pair.theirs.recv_datagram() == b"ping"
    assert pair.theirs.send_datagram(memoryview(b"pong" * 1000))
    assert await pair.ours.recv_datagram() == b"pong" * 1000
    with pytest.raises(TypeError):
        pair.ours.send_datagram("text")


async def test_a_program_with_media_is_told_the_rate_to_produce(identity):
    pair = await make_pair(identity)
    pair.ours.set_congestion("gcc")
    first = await pair.ours.wait_target_rate()
    assert 20e3 < first < 5e6
    stream = pair.ours.open_stream()

    async def write():
        while True:
            await stream.write(bytes(65536))

    writing = asyncio.create_task(write())
    async for rate in pair.ours.target_rates():
        if rate > 2 * first:
            break
    writing.cancel()
    # A control for bulk has none, and a wait that is given up takes nothing.
    pair.ours.set_congestion("model")
    waiting = asyncio.create_task(pair.ours.wait_target_rate())
    await asyncio.sleep(0.05)
    pair.ours.abort()
    with pytest.raises(noctule.SessionClosed):
        while True:
            await waiting
            waiting = asyncio.create_task(pair.ours.wait_target_rate())
    await pair.server.close()


async def test_datagrams_that_find_no_room_are_dropped_and_said_to_be(pair):
    sent = [pair.ours.send_datagram(bytes(60_000)) for _ in range(500)]
    assert True in sent and False in sent
