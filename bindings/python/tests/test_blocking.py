"""Without an event loop."""

import os
import signal
import threading
import time

import noctule
import pytest
from noctule import blocking


@pytest.fixture
def server(identity):
    endpoint = blocking.listen("127.0.0.1:0", authorised=None, identity=identity)
    yield endpoint
    endpoint.close(timeout=10)


@pytest.fixture
def sessions(server, identity):
    ours = blocking.connect(f"127.0.0.1:{server.port}", key=identity.public_key, timeout=10)
    theirs = server.accept(timeout=10)
    yield ours, theirs
    ours.abort()


def test_streams_messages_and_datagrams(sessions):
    ours, theirs = sessions
    data = os.urandom(10_000_000)

    def echo():
        for stream in theirs.streams():
            for block in stream:
                stream.write(block)
            stream.finish()

    thread = threading.Thread(target=echo)
    thread.start()
    stream = ours.open_stream()
    writer = threading.Thread(target=lambda: (stream.write(data), stream.finish()))
    writer.start()
    assert stream.readexactly(3) == data[:3]
    buffer = bytearray(5)
    n = stream.readinto(buffer, timeout=10)
    assert buffer[:n] == data[3 : 3 + n]
    assert stream.read_to_end(len(data), timeout=30) == data[3 + n :]
    writer.join()
    flow = ours.open_messages(mode="btp", ordered=False, lifetime=10)
    assert [flow.send(text) for text in (b"one", b"two")] == [0, 1]
    incoming = theirs.accept_messages(timeout=10)
    finisher = threading.Thread(target=flow.finish)
    finisher.start()
    assert sorted(message.data for message in incoming) == [b"one", b"two"]
    assert incoming.recv() is None
    finisher.join()
    assert theirs.send_datagram(b"d") and ours.recv_datagram(timeout=10) == b"d"
    outcome = ours.close(timeout=10)
    assert outcome.all_delivered
    thread.join()


def test_timeouts_end_calls_and_lose_nothing(sessions):
    ours, theirs = sessions
    for call in (ours.accept_stream, ours.accept_messages, ours.recv_datagram, ours.wait_closed):
        with pytest.raises(TimeoutError):
            call(timeout=0.01)
    with pytest.raises(ValueError):
        ours.accept_stream(timeout=-1)
    stream = ours.open_stream()
    stream.write(b"abc")
    there = theirs.accept_stream(timeout=10)
    with pytest.raises(TimeoutError):
        there.readexactly(5, timeout=0.05)
    stream.write(b"de")
    assert there.readexactly(5, timeout=10) == b"abcde"
    flow = ours.open_messages()
    with pytest.raises(TimeoutError):
        while True:
            flow.send(bytes(1_000_000), timeout=0.2)


def test_ctrl_c_ends_a_blocked_call(sessions):
    ours, _ = sessions
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            ours.accept_stream()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ours.close_reason is None


def test_a_blocked_thread_does_not_hold_the_interpreter(sessions):
    ours, theirs = sessions
    thread = threading.Thread(target=ours.accept_stream)
    thread.start()
    time.sleep(0.05)
    stream = theirs.open_stream()
    stream.write(b"x")
    thread.join()


def test_a_wrong_key_is_told_and_a_raising_block_aborts(server, identity):
    with pytest.raises(noctule.ConnectError) as told:
        blocking.connect(f"127.0.0.1:{server.port}", key=noctule.Identity.generate().public_key, connect_timeout=1)
    assert told.value.kind == "wrong_key"
    with pytest.raises(ZeroDivisionError):
        with blocking.connect(f"127.0.0.1:{server.port}", key=identity.public_key):
            theirs = server.accept()
            1 / 0
    assert theirs.wait_closed(timeout=10).reason.application == 1


def test_many_threads_use_one_session(sessions):
    ours, theirs = sessions

    def echo():
        for stream in theirs.streams():
            stream.write(stream.read_to_end(1000))
            stream.finish()

    answering = [threading.Thread(target=echo) for _ in range(3)]
    answers = []

    def ask(n):
        stream = ours.open_stream()
        stream.write(bytes([n]))
        stream.finish()
        answers.append(stream.read_to_end(10))

    asking = [threading.Thread(target=ask, args=(n,)) for n in range(30)]
    for thread in answering + asking:
        thread.start()
    for thread in asking:
        thread.join()
    ours.close()
    for thread in answering:
        thread.join()
    assert sorted(answers) == [bytes([n]) for n in range(30)]


def test_a_client_of_many_sessions(server, identity):
    with blocking.Endpoint.client() as client:
        for _ in range(3):
            session = client.connect(f"127.0.0.1:{server.port}", key=str(identity.public_key), timeout=10)
            assert server.accept(timeout=10) is not None
            assert session.peer_key == identity.public_key
    assert client.accept() is None
