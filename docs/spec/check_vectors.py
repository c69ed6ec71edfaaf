#!/usr/bin/env python3
"""Checks keys and tags of vectors.txt against wire.md and session.md without any code of noctule: Noise, key derivation, packet protection, key texts,
mac1, sealed packets of relayed sessions and their homomorphic tags. What the bytes mean is checked by check_format.py, which needs no package.

Needs the package `cryptography`. Run: python3 docs/spec/check_vectors.py
"""
import base64
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from decode import combine, gf_mul, read_vectors


def blake2s(*parts):
    return hashlib.blake2s(b"".join(parts)).digest()


def hkdf_noise(chaining_key, ikm, n):
    """HKDF of the Noise specification, §4.3, over HMAC-BLAKE2s."""
    temp = hmac.new(chaining_key, ikm, hashlib.blake2s).digest()
    out, last = [], b""
    for i in range(1, n + 1):
        last = hmac.new(temp, last + bytes([i]), hashlib.blake2s).digest()
        out.append(last)
    return out


def hkdf_sha256_expand(prk, info, length):
    out, last = b"", b""
    for i in range(1, 256):
        if len(out) >= length:
            break
        last = hmac.new(prk, last + info + bytes([i]), hashlib.sha256).digest()
        out += last
    return out[:length]


def public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def dh(secret, key):
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(key))


PATTERNS = {
    "IK": ([], ["s"], [["e", "es", "s", "ss"], ["e", "ee", "se"]]),
    "XX": ([], [], [["e"], ["e", "ee", "s", "es"], ["s", "se"]]),
    "IKpsk2": ([], ["s"], [["e", "es", "s", "ss"], ["e", "ee", "se", "psk"]]),
    "XXpsk3": ([], [], [["e"], ["e", "ee", "s", "es"], ["s", "se", "psk"]]),
    "NNpsk0": ([], [], [["psk", "e"], ["e", "ee"]]),
}


class Symmetric:
    """Both sides at once: the side that writes knows its own secrets, and the transcript is the same."""

    def __init__(self, name, prologue):
        name = name.encode()
        self.h = name.ljust(32, b"\0") if len(name) <= 32 else blake2s(name)
        self.ck, self.k, self.n = self.h, None, 0
        self.mix_hash(prologue)

    def mix_hash(self, data):
        self.h = blake2s(self.h, data)

    def mix_key(self, ikm):
        self.ck, self.k = hkdf_noise(self.ck, ikm, 2)
        self.n = 0

    def mix_key_and_hash(self, ikm):
        self.ck, h, self.k = hkdf_noise(self.ck, ikm, 3)
        self.mix_hash(h)
        self.n = 0

    def decrypt_and_hash(self, data):
        nonce = bytes(4) + struct.pack("<Q", self.n)
        plain = ChaCha20Poly1305(self.k).decrypt(nonce, data, self.h)
        self.n += 1
        self.mix_hash(data)
        return plain

    def encrypt_and_hash(self, data):
        if self.k is not None:
            nonce = bytes(4) + struct.pack("<Q", self.n)
            data = ChaCha20Poly1305(self.k).encrypt(nonce, data, self.h)
            self.n += 1
        self.mix_hash(data)
        return data


def noise(pattern, prologue, statics, ephemerals, psk, payloads):
    """Messages, hash and split keys; index 0 is the initiator."""
    state = Symmetric(f"Noise_{pattern}_25519_ChaChaPoly_BLAKE2s", prologue)
    _, responder_known, messages = PATTERNS[pattern]
    if responder_known:
        state.mix_hash(public(statics[1]))
    out = []
    for number, tokens in enumerate(messages):
        writer = number % 2
        message = b""
        for token in tokens:
            if token == "e":
                key = public(ephemerals[writer])
                message += key
                state.mix_hash(key)
                if "psk" in pattern:
                    state.mix_key(key)
            elif token == "s":
                message += state.encrypt_and_hash(public(statics[writer]))
            elif token == "psk":
                state.mix_key_and_hash(psk)
            else:
                secrets = {"e": ephemerals, "s": statics}
                state.mix_key(dh(secrets[token[0]][0], public(secrets[token[1]][1])))
        out.append(message + state.encrypt_and_hash(payloads[number]))
    return out, state.h, hkdf_noise(state.ck, b"", 2)


def unhex(section, key):
    return bytes.fromhex(section[key][0])


def expect(what, ours, theirs):
    assert ours == theirs, f"{what}: {ours.hex()} is not {theirs.hex()}"


def check_handshakes(sections):
    for name, pattern in {"Ik": "IK", "Xx": "XX", "IkPsk2": "IKpsk2", "XxPsk3": "XXpsk3"}.items():
        s = sections[f"handshake {name}"]
        statics = [unhex(s, "initiator_static"), unhex(s, "responder_static")]
        ephemerals = [unhex(s, "initiator_ephemeral"), unhex(s, "responder_ephemeral")]
        psk = unhex(s, "psk") if "psk" in s else None
        payloads = [unhex(s, f"payload{i}") for i in (1, 2, 3)]
        messages, h, keys = noise(pattern, unhex(s, "prologue"), statics, ephemerals, psk, payloads)
        for i, message in enumerate(messages, 1):
            expect(f"{name} message {i}", message, unhex(s, f"message{i}"))
        expect(f"{name} hash", h, unhex(s, "hash"))
        expect(f"{name} key", keys[0], unhex(s, "initiator_to_responder"))
        expect(f"{name} key", keys[1], unhex(s, "responder_to_initiator"))


def check_rekey(sections):
    check_generation(sections, "generation 1 after handshake Ik", b"noctule rekey")
    check_generation(sections, "generation 1 of a session after handshake Ik", b"noctule session rekey")


def check_generation(sections, title, label):
    s, before = sections[title], sections["handshake Ik"]
    h = unhex(before, "hash")
    secrets = unhex(before, "initiator_to_responder") + unhex(before, "responder_to_initiator")
    psk = hkdf_sha256_expand(hmac.new(h, secrets, hashlib.sha256).digest(), label, 32)
    expect("rekey psk", psk, unhex(s, "psk"))
    ephemerals = [unhex(s, "initiator_ephemeral"), unhex(s, "responder_ephemeral")]
    prologue = label + struct.pack(">Q", 1) + h
    messages, h, keys = noise("NNpsk0", prologue, None, ephemerals, psk, [b"", b""])
    expect("rekey message 1", messages[0], unhex(s, "message1"))
    expect("rekey message 2", messages[1], unhex(s, "message2"))
    expect("rekey hash", h, unhex(s, "hash"))
    expect("rekey key", keys[0], unhex(s, "initiator_to_responder"))
    expect("rekey key", keys[1], unhex(s, "responder_to_initiator"))


def check_packets(sections):
    ciphers = {"Plaintext": (0, None, 0), "Aes128Gcm": (1, AESGCM, 16), "Aes256Gcm": (2, AESGCM, 32), "ChaCha20Poly1305": (3, ChaCha20Poly1305, 32)}
    for name, (number, cipher, key_len) in ciphers.items():
        s = sections[f"packet protection {name}"]
        path, epoch, packet = map(int, s["path, epoch, packet number"][0].split(", "))
        info = b"noctule packet" + bytes([number]) + struct.pack(">IQ", path, epoch)
        okm = hkdf_sha256_expand(unhex(s, "generation_secret"), info, 44)
        nonce = bytes(a ^ b for a, b in zip(okm[32:], struct.pack(">IQ", path, packet)))
        expect(f"{name} nonce", nonce, unhex(s, "nonce"))
        header, payload = unhex(s, "header"), unhex(s, "payload")
        sealed = payload + nonce + bytes(4) if cipher is None else cipher(okm[:key_len]).encrypt(nonce, payload, header)
        expect(f"{name} packet", header + sealed, unhex(s, "packet"))


def check_identities(sections):
    s = sections["identities"]
    for secret, secret_text, key, text in zip(s["secret"], s["secret_text"], s["public"], s["public_text"]):
        expect("public key", public(bytes.fromhex(secret)), bytes.fromhex(key))
        for label, raw, written in ((b"noctule secret key", secret, secret_text.removeprefix("secret-")), (b"noctule public key", key, text)):
            raw = bytes.fromhex(raw)
            expect("key text", base64.b32encode(raw + hashlib.sha256(label + raw).digest()[:3]).lower(), written.encode())


def check_mac1(sections):
    s = sections["packets"]
    plain, pinned, prologue = unhex(s, "initiate"), unhex(s, "initiate_pinned"), unhex(s, "initiate_prologue")
    # Behind first byte, version, ids of 8 and 4 bytes with their lengths, and the length: pattern, mac1, token of 3 bytes, message.
    pattern = 1 + 4 + 9 + 5 + 2
    expect("mac1 of XX", bytes(16), plain[pattern + 1 : pattern + 17])
    # The prologue of the other INITIATE differs in its pattern only.
    prologue = prologue[:11] + pinned[pattern : pattern + 1] + prologue[12:]
    key = hashlib.sha256(b"noctule mac1" + unhex(s, "responder_public")).digest()
    message = pinned[pattern + 17 + 2 + 3 :]
    expect("mac1", hmac.new(key, prologue + message, hashlib.sha256).digest()[:16], pinned[pattern + 1 : pattern + 17])


def check_announcement(sections):
    """blind.md 6: the tag by the receiver's public key, then the message of Noise's pattern X by its secret."""
    s = sections["announcement"]
    receiver, datagram = unhex(s, "receiver_static"), unhex(s, "datagram")
    head, tag, message = datagram[:5], datagram[5:21], datagram[21:]
    key = hashlib.sha256(b"noctule announcement" + public(receiver)).digest()
    expect("tag of an announcement", hmac.new(key, head + message, hashlib.sha256).digest()[:16], tag)
    state = Symmetric("Noise_X_25519_ChaChaPoly_BLAKE2s", b"noctule one-way" + head)
    state.mix_hash(public(receiver))
    state.mix_hash(message[:32])
    state.mix_key(dh(receiver, message[:32]))
    sender = state.decrypt_and_hash(message[32:80])
    expect("sender of an announcement", sender, public(unhex(s, "sender_static")))
    state.mix_key(dh(receiver, sender))
    stamp, k, m, d, t, block, messages = map(int, s["stamp, K, M, d, T, block, messages"][0].split(", "))
    payload = struct.pack(">Q", stamp) + unhex(s, "name") + unhex(s, "secret") + struct.pack(">HBBHIQ", k, m, d, t, block, messages)
    expect("payload of an announcement", state.decrypt_and_hash(message[80:]), payload)


def mac(key, packet):
    """codes.md 6: the sum of p_J k_J in GF(256)[y] / (y^8 + y^3 + y + 9)."""
    total = [0] * 15
    packet += bytes(-len(packet) % 8)
    for at in range(0, len(packet), 8):
        for i in range(8):
            for j in range(8):
                total[i + j] ^= gf_mul(packet[at + i], key[at + j])
    for i in range(14, 7, -1):
        total[i - 5] ^= total[i]
        total[i - 7] ^= total[i]
        total[i - 8] ^= gf_mul(9, total[i])
    return bytes(total[:8])


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def check_sessions(sections):
    """session.md 8. What FLOW_OPEN says for the ends is that of the vector's own FLOW_OPEN: index 1, btp, unordered messages, M 16, answers 2, tag 77; of the
    part that it is brtp, and part 3."""
    flow_alone = struct.pack(">QBBBBQQ", 1, 1, 1, 16, 6, 2, 77)
    flow_part = struct.pack(">QBBBBQQQ", 1, 0, 1, 16, 6, 2, 77, 3)
    ciphers = {"Aes128Gcm": (1, AESGCM, 16), "Aes256Gcm": (2, AESGCM, 32), "ChaCha20Poly1305": (3, ChaCha20Poly1305, 32)}
    ciphers["ChaCha20Poly1305 part"] = ciphers["ChaCha20Poly1305"]
    for name, (number, cipher, key_len) in ciphers.items():
        s = sections[f"session {name}"]
        flow = flow_part if name.endswith(" part") else flow_alone
        direction, c = unhex(s, "direction_secret"), bytes([number])
        secret = hkdf_sha256_expand(direction, b"noctule session flow" + c + flow, 32)
        mac_secret = hkdf_sha256_expand(direction, b"noctule session mac secret", 32)
        mac_key = hkdf_sha256_expand(mac_secret, b"noctule session mac" + struct.pack(">I", 0), 4096)
        if name.endswith(" part"):
            opening = hkdf_sha256_expand(direction, b"noctule session opening", 32)
            statement = flow + struct.pack(">QQQ", 3, 0, 0)
            expect(f"{name} proof", hmac.new(opening, statement, hashlib.sha256).digest()[:16], unhex(s, "opening_proof"))

        def seal(okm, n, data):
            return cipher(okm[:key_len]).encrypt(xor(okm[32:], struct.pack(">IQ", 0, n)), data, b"")

        symbols, pads = [], []
        for seq, payload, symbol in zip(map(int, s["sequence number"]), s["payload"], s["symbol"]):
            okm = hkdf_sha256_expand(secret, b"noctule session packet" + c + struct.pack(">Q", seq >> 20), 44)
            sealed = seal(okm, seq, bytes.fromhex(payload))
            length = struct.pack(">H", 8 + len(sealed))
            pad_okm = hkdf_sha256_expand(secret, b"noctule session pads" + c, 44)
            pad = seal(pad_okm, seq >> 4, bytes(128))[seq % 16 * 8 :][:8]
            tag = xor(mac(mac_key, length + bytes(6) + sealed), pad)
            expect(f"{name} symbol {seq}", length + tag + sealed, bytes.fromhex(symbol))
            symbols.append(length + tag + sealed)
            pads.append(pad)
        combination, coefficients = unhex(s, "combination"), unhex(s, "coefficients")
        expect(f"{name} combination", combine(coefficients, symbols), combination)
        tag = mac(mac_key, combination[:2] + bytes(6) + combination[10:])
        for coefficient, pad in zip(coefficients, pads):
            tag = xor(tag, bytes(gf_mul(coefficient, byte) for byte in pad))
        expect(f"{name} tag of the combination", tag, combination[2:10])


def main():
    sections, _ = read_vectors()
    for check in (check_handshakes, check_rekey, check_packets, check_identities, check_mac1, check_announcement, check_sessions):
        check(sections)
        print(check.__name__.removeprefix("check_"), "as specified")


if __name__ == "__main__":
    main()
