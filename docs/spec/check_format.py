#!/usr/bin/env python3
"""Decodes every vector of vectors.txt, and those in session.md and codes.md, with decode.py, and compares with what is said of them.

Run: python3 docs/spec/check_format.py
"""
from decode import HERE, Malformed, Reader, announcement, coefficients, combine, expect, frames, handshake_packet, message_items, protected_packet, read_vectors, session_frames, show_parameters


def one_frame(raw):
    found = frames(raw)
    if len(found) != 1:
        raise Malformed(f"{len(found)} frames instead of one")
    return found[0][0]


def check_vectors():
    sections, said = read_vectors()
    for number, (raw,) in sections["varint"].items():
        r = Reader(bytes.fromhex(raw))
        expect(f"varint {number}", (r.varint(), r.left()), (int(number), 0))
    for name, (raw,) in sections["frames"].items():
        expect(f"frame {name}", one_frame(bytes.fromhex(raw)), said["frames"][name])
    for title, section in sections.items():
        if title.startswith("session "):
            expect(title, one_frame(bytes.fromhex(section["flow_open"][0])), said[title]["flow_open"])
            symbols = [bytes.fromhex(s) for s in section["symbol"]]
            for symbol, payload in zip(symbols, section["payload"]):
                # length || tag of 8 bytes || payload || tag of the AEAD, 16 bytes (session.md 8.3)
                expect(f"{title}, length", int.from_bytes(symbol[:2], "big"), 8 + len(payload) // 2 + 16)
                expect(f"{title}, symbol", len(symbol), 2 + 8 + len(payload) // 2 + 16)
            expect(f"{title}, combination", combine(bytes.fromhex(section["coefficients"][0]), symbols).hex(), section["combination"][0])
    packets = {k: bytes.fromhex(v[0]) for k, v in sections["packets"].items()}
    noise, ids, back = "6e6f697365", "to 0102030405060708 from a0a1a2a3", "to a0a1a2a3 from 0102030405060708"
    initiate = lambda pattern, mac1: f"INITIATE {ids} {pattern} mac1 {mac1} token 746f6b noise 5"
    expected = {
        "initiate": initiate("XX", "00" * 16),
        "initiate_pinned": initiate("IK", "d1a6f92d9070a73cb1c1bce3343a26f5"),
        "respond": f"RESPOND {ids} noise 5",
        "finish": f"FINISH {ids} noise 5",
        "retry": f"RETRY {back} token 746f6b",
        "version_list": f"VERSIONS {back} 0x6e6f6332",
    }
    for name, text in expected.items():
        r = Reader(packets[name])
        expect(name, (handshake_packet(r)[0], r.left()), (text, 0))
        expect(f"{name}, Noise message", name in ("retry", "version_list") or packets[name].hex().endswith(noise), True)
    expect("prologue", packets["initiate_prologue"].hex(), (b"noctule" + packets["initiate"][1:5] + b"\x01" + packets["initiate"][5:19] + b"\0\3tok").hex())
    expect("protected header", protected_packet(packets["protected_header"] + bytes(17), 4)[0], "PROTECTED to a0a1a2a3 generation 2 number 16909060 plaintext 1")
    parameters = "idle_timeout 30000, reserved 0x78 030303, connection_id a0a1a2a3, versions 6e6f6332, ciphers 0103, max_datagram 1472, max_ack_delay 25000, ack_every 32, "
    parameters += "initial_credit 32, max_message 16777216, max_flows 256, epoch_log2 20, plaintext, answered_size 1200, restart_epoch 19088743"
    expect("parameters", show_parameters(packets["params_grease_3"]), parameters)
    for cipher in ("Plaintext", "Aes128Gcm", "Aes256Gcm", "ChaCha20Poly1305"):
        section = sections[f"packet protection {cipher}"]
        path, epoch, number = map(int, section["path, epoch, packet number"][0].split(", "))
        packet, payload = bytes.fromhex(section["packet"][0]), bytes.fromhex(section["payload"][0])
        expect(f"{cipher}, header", packet[:9].hex(), section["header"][0])
        expect(f"{cipher}, number", int.from_bytes(packet[5:9], "big"), number & 0xFFFFFFFF)
        expect(f"{cipher}, epoch of 2^20 packets", number >> 20, epoch)
        expect(f"{cipher}, size", len(packet), 9 + len(payload) + 16)
        if cipher == "Plaintext":
            expect("plaintext", packet[9:].hex(), (payload + bytes.fromhex(section["nonce"][0]) + bytes(4)).hex())
    for title, section in sections.items():
        if title.startswith("handshake "):
            sizes = {"Ik": (32 + 48 + 16, 32 + 16), "Xx": (32, 32 + 48 + 16, 48 + 16)}["Ik" if "Ik" in title else "Xx"]
            psk = 16 if title == "handshake XxPsk3" else 0  # With a key mixed into `e` the first payload is encrypted, too.
            for i, size in enumerate(sizes, 1):
                expect(f"{title}, message {i}", len(section[f"message{i}"][0]) // 2, size + len(section[f"payload{i}"][0]) // 2 + (psk if i == 1 else 0))
        if title.startswith("generation 1"):
            expect(title, [len(section[k][0]) // 2 for k in ("psk", "message1", "message2", "hash")], [32, 48, 48, 32])
    for raw, text in zip(sections["identities"]["public"], sections["identities"]["public_text"]):
        expect("length of a key's text", (len(raw), len(text)), (64, 56))
    expect("announcement", announcement(bytes.fromhex(sections["announcement"]["datagram"][0]))[0].split(" tag ")[0], "ANNOUNCEMENT version 0x6e6f6332")
    return sum(len(values) for section in sections.values() for values in section.values())


def check_pages():
    """The vectors that stand in session.md 7 and codes.md 2."""
    page = (HERE / "session.md").read_text().split("## 7. Vectors")[1].split("Key schedule")[0].splitlines()
    heading, count = "", 0
    for line in filter(str.strip, page):
        line = line.strip()
        # Bytes stand beside their name, behind at least two spaces, or in a line of their own below it.
        said, _, raw = (heading, "", line) if set(line) <= set("0123456789abcdef ") else line.partition("  ")
        if not raw:
            heading = said
            continue
        data, count = bytes.fromhex(raw.replace(" ", "")), count + 1
        if said.startswith("messages"):
            expect(said, message_items(data), ["TAIL 2 ago b'end'", "WHOLE 5 b'ab'", "WHOLE 6 b''", "HEAD 7 of 300 b'start'"])
        else:
            found = session_frames(data)
            expect(said, [f.split()[0] for f in found], [said.split()[0]])
    for line in (HERE / "codes.md").read_text().split("| seed |")[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        _, seed, row, _ = line.split("|")
        expect(f"coefficients of seed {seed.strip()}", bytes(coefficients(int(seed), 10)).hex(" "), row.strip())
        count += 1
    return count


# What wire.md calls an encoding error, by the rule that each breaks.
MALFORMED = {
    "unknown mandatory frame": "2c",
    "a varint that is cut off": "0e05 80",
    "a bit beyond a bitmap": "18 05 20 0a 08 0104",
    "a rank above n": "18 05 20 0a 0b 0000",
    "an empty bitmap of coefficients": "0a 05 5000 8b 0000 0002 05 0003aabbcc",
    "an index that is not below n": "0a 05 5000 0f 10 05 0003aabbcc",
    "a symbol of one byte": "0a 05 5000 0f 07 01 00",
    "a batch size of 15": "0c 18 0123456789abcdef 01 03 059d 00 01 00 0f 08 bb8b87c0 404d 00",
    "an ACK without segments": "04 01 0a 00 00",
    "an ACK below packet 0": "04 01 02 00 01 02 04 00",
    "a largest packet that did not arrive": "04 01 0a 00 01 03 00",
    "a step of REKEY that is 2": "24 01 02 00",
    "an id of 9 bytes": "1c 01 04 09 010203040506070809",
}


def check_malformed():
    for rule, raw in MALFORMED.items():
        try:
            frames(bytes.fromhex(raw))
        except Malformed:
            continue
        raise SystemExit(f"taken although malformed: {rule}")
    return len(MALFORMED)


if __name__ == "__main__":
    print(f"vectors.txt: {check_vectors()} values as specified")
    print(f"session.md, codes.md: {check_pages()} vectors as specified")
    print(f"wire.md: {check_malformed()} encoding errors refused as specified")
