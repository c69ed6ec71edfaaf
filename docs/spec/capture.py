#!/usr/bin/env python3
"""Writes capture.txt: one file sent in the clear over a link that loses a fifth of what both ends send, datagram by datagram.

    python3 docs/spec/capture.py target/debug/noctule docs/spec/capture.txt [LOSS]

Both ends run on loopback (`--no-encryption`, `--mtu 900` for short lines), with a UDP relay between them that drops and writes.
What is lost is written, too, as its sender sent it, and marked. Keys are new each time: another run gives other bytes of the same kind.
"""
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

BYTES, SEED = 6000, 7
SENDER, RECEIVER = "192.0.2.1:4243", "192.0.2.2:4242"  # as the capture names them (RFC 5737)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def relay(near, port, sender, lines, deadline, loss):
    """Passes datagrams on until the sender has ended; returns whether it did."""
    far, caller, dice, begin = ("127.0.0.1", port), None, random.Random(SEED), time.monotonic()
    near.settimeout(0.05)
    while time.monotonic() < deadline:
        try:
            data, source = near.recvfrom(65535)
        except TimeoutError:
            if sender.poll() is not None:
                return True
            continue
        if source != far:
            caller = source
        # The handshake is spared: each of its packets is a long line of zeros.
        lost = data[0] >> 6 == 1 and dice.random() < loss
        names = (RECEIVER, SENDER) if source == far else (SENDER, RECEIVER)
        lines.append(f"{time.monotonic() - begin:.6f} {names[0]} {names[1]} {data.hex()}" + " lost" * lost)
        if not lost:
            near.sendto(data, caller if source == far else far)
    return False


def main():
    program, out, *loss = sys.argv[1:]
    loss = float(loss[0]) if loss else 0.2
    with tempfile.TemporaryDirectory() as work, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
        work, port = pathlib.Path(work), free_port()
        near.bind(("127.0.0.1", 0))
        (work / "in").mkdir()
        (work / "words.txt").write_text("".join(f"line {n}\n" for n in range(BYTES))[:BYTES])
        for name in ("a", "b"):
            subprocess.run([program, "keygen", "--output", work / name], check=True, capture_output=True)
        common = ["--no-encryption", "--mtu", "900"]
        receive = [program, "recv", "--bind", f"127.0.0.1:{port}", "--into", work / "in", "--key", work / "a", "--anyone", "--once"]
        send = [program, "send", work / "words.txt", f"127.0.0.1:{near.getsockname()[1]}", "--key", work / "b", "--accept-new"]
        lines = []
        receiver = subprocess.Popen(receive + common, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            sender = subprocess.Popen(send + ["--known-hosts", work / "hosts"] + common, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            ended = relay(near, port, sender, lines, time.monotonic() + 30, loss)
        finally:
            receiver.kill()
        if not ended or sender.returncode != 0:
            sender.kill()
            sys.exit(f"the transfer failed: {sender.stderr.read().decode()}")
    head = "# seconds source destination datagram [lost]. Made by capture.py, which says how.\n"
    pathlib.Path(out).write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
