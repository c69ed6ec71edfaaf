#!/usr/bin/env python3
"""Checks crates/node/src/code/vectors.txt against code.md without any code of noctule: SPAKE2 over edwards25519, and the proofs.

Needs nothing but Python. Run: python3 docs/spec/check_code.py
"""
import hashlib
import hmac
import pathlib
import struct

# edwards25519, RFC 8032 §5.1.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def decode(text):
    y = int.from_bytes(text, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if x * x % P != x2:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == x2, "no point"
    return (P - x if x & 1 != sign else x), y


def encode(point):
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def add(a, b):
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def times(n, point):
    total = (0, 1)
    while n:
        if n & 1:
            total = add(total, point)
        point, n = add(point, point), n >> 1
    return total


G = decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
M = decode(bytes.fromhex("15cfd18e385952982b6a8f8c7854963b58e34388c8e6dae891db756481a02312"))
N = decode(bytes.fromhex("f04f2e7eb734b2a8f8b472eaf9c3c632576ac64aea650b496a8a20ff00e583c3"))


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def hkdf(ikm, info, length):
    prk, out, last = hmac.new(bytes(32), ikm, hashlib.sha256).digest(), b"", b""
    for i in range(1, 256):
        last = hmac.new(prk, last + info + bytes([i]), hashlib.sha256).digest()
        out += last
        if len(out) >= length:
            return out[:length]


def blake3_keyed(key, text):
    """BLAKE3 in keyed mode, of at most one block."""
    iv = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A]
    words = list(struct.unpack("<16I", text.ljust(64, b"\0")))
    # Flags: CHUNK_START, CHUNK_END, ROOT, KEYED_HASH.
    v = [*struct.unpack("<8I", key), *iv, 0, 0, len(text), 1 | 2 | 8 | 16]

    def rotate(x, n):
        return (x >> n | x << 32 - n) & 0xFFFFFFFF

    def mix(a, b, c, d, x, y):
        for word, first, second in ((x, 16, 12), (y, 8, 7)):
            v[a] = (v[a] + v[b] + word) & 0xFFFFFFFF
            v[d] = rotate(v[d] ^ v[a], first)
            v[c] = (v[c] + v[d]) & 0xFFFFFFFF
            v[b] = rotate(v[b] ^ v[c], second)

    for _ in range(7):
        for i, (a, b, c, d) in enumerate(
            [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
        ):
            mix(a, b, c, d, words[2 * i], words[2 * i + 1])
        words = [words[i] for i in (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)]
    return struct.pack("<8I", *(v[i] ^ v[i + 8] for i in range(8)))


def run(v):
    """What both ends compute, by the names of the file."""
    code, a, b = v["code"].encode(), bytes.fromhex(v["sender_key"]), bytes.fromhex(v["receiver_key"])
    x, y = (int.from_bytes(bytes.fromhex(v[name]), "little") for name in ("x", "y"))
    w = int.from_bytes(hkdf(code, b"SPAKE2 pw", 48), "big") % L
    first, second = add(times(x, G), times(w, M)), add(times(y, G), times(w, N))
    # Subtracting w M is adding (L - w) M: M is in the group of order L.
    at_sender = times(x, add(second, times(L - w, N)))
    at_receiver = times(y, add(first, times(L - w, M)))
    assert at_sender == at_receiver
    ids = (b"noctule code 1 sender " + a, b"noctule code 1 receiver " + b)
    secret = sha256(sha256(code), *map(sha256, ids), encode(first), encode(second), encode(at_sender))
    proofs = [blake3_keyed(secret, b"noctule code 1 proof of the " + side) for side in (b"sender", b"receiver")]
    return dict(zip(("X", "Y", "sender_proof", "receiver_proof"), (encode(first), encode(second), *proofs)))


def main():
    path = pathlib.Path(__file__).parents[2] / "crates/node/src/code/vectors.txt"
    lines = [line.split(" = ") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    vector = dict(lines)
    for name, value in run(vector).items():
        assert value.hex() == vector[name], f"{name}: {value.hex()}"
    print("code as specified")


if __name__ == "__main__":
    main()
