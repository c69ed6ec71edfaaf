#!/usr/bin/env python3
"""CPU time that a relay takes per Gbit carried, beside the kernel's own forwarding. As root, on Linux:

    NOCTULE_BIN=target/release/noctule python3 docs/results/relay_cpu.py [RATE ...]        (100mbit 300mbit full)

Relay: `noctule perf` between two ends over one `noctule node`, three processes on loopback; the node's user and system time (/proc/PID/stat) over the bytes
that the far end's application read. Kernel: UDP packets of 1500 bytes from one namespace to another, over veth directly and over a third namespace that
forwards; the difference of the sender's user and system time, in which the kernel's softirq work on veth is done and counted, over the same bytes.
Started with `chrt -r 10`, it is little disturbed by what else runs.
"""
import json, os, re, resource, socket, subprocess, sys, tempfile, time

BIN = os.path.abspath(os.environ.get("NOCTULE_BIN", "target/release/noctule"))
TICKS = os.sysconf("SC_CLK_TCK")


def keygen(directory, name):
    out = subprocess.run([BIN, "keygen", "-o", f"{directory}/{name}.key"], capture_output=True, text=True, check=True)
    return re.search(r"[a-z2-7]{56}", out.stdout + out.stderr).group()


def cpu_of(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def relay(rates, seconds=8):
    with tempfile.TemporaryDirectory() as d:
        keys = {name: keygen(d, name) for name in ("relay", "sender", "receiver")}
        port = free_port()
        neighbours = "".join(
            f'[[neighbour]]\nname = "{name}"\nkey = "{keys[name]}"\naddresses = ["{address}"]\n'
            for name, address in (("sender", "10.9.0.1"), ("receiver", "10.9.0.4"))
        )
        with open(f"{d}/node.toml", "w") as file:
            file.write(
                f'[node]\nkey = "relay.key"\nlisten = "127.0.0.1:{port}"\naddresses = ["10.9.0.2"]\nrelay = true\n'
                f'{neighbours}[control]\nsocket = "socket"\n'
            )
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        via = ["--via", f"127.0.0.1:{port}", "--via-key", keys["relay"]]
        node = subprocess.Popen([BIN, "node", "--config", f"{d}/node.toml"], **quiet)
        time.sleep(1)
        server = subprocess.Popen([BIN, "perf", "-s", "--anyone", *via, "--address", "10.9.0.4", "--key", f"{d}/receiver.key"], **quiet)
        try:
            time.sleep(1)
            for rate in rates:
                before = cpu_of(node.pid)
                client = [BIN, "perf", "-c", "10.9.0.4", "--peer-key", keys["receiver"], *via, "--address", "10.9.0.1", "--key", f"{d}/sender.key"]
                limit = [] if rate == "full" else ["-b", rate]
                out = subprocess.run([*client, *limit, "-t", str(seconds), "--json"], capture_output=True, text=True, timeout=60)
                spent = cpu_of(node.pid) - before
                if out.returncode != 0:
                    sys.exit(f"perf ended with {out.returncode}: {out.stderr}")
                yield rate, json.loads(out.stdout.splitlines()[-1]), spent
        finally:
            for process in (server, node):
                process.kill()
                process.wait()


def sender(to, packets, train):
    """In the sender's namespace: prints CPU seconds for so many packets of 1472 bytes, in trains of so many (UDP GSO)."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((to, 9))
    if train > 1:
        s.setsockopt(socket.SOL_UDP if hasattr(socket, "SOL_UDP") else 17, 103, 1472)
    data = bytes(1472 * train)
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(packets // train):
        try:
            s.send(data)
        except ConnectionRefusedError:
            pass
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def kernel(packets, train, rounds=5):
    names = [f"noctule-cpu-{os.getpid()}-{i}" for i in range(3)]
    ip = lambda *words: subprocess.run(["ip", *words], check=True)
    inside = lambda name, *words: ip("netns", "exec", name, *words)
    try:
        for name in names:
            ip("netns", "add", name)
            inside(name, "ip", "link", "set", "lo", "up")
        # a-r-b, and a-b directly.
        for i, (a, b, net) in enumerate(((0, 1, "10.77.1"), (1, 2, "10.77.2"), (0, 2, "10.77.3"))):
            ip("link", "add", f"v{i}a", "netns", names[a], "type", "veth", "peer", "name", f"v{i}b", "netns", names[b])
            for end, host, last in ((a, "a", 1), (b, "b", 2)):
                inside(names[end], "ip", "addr", "add", f"{net}.{last}/24", "dev", f"v{i}{host}")
                inside(names[end], "ip", "link", "set", f"v{i}{host}", "up")
        inside(names[1], "sysctl", "-qw", "net.ipv4.ip_forward=1")
        inside(names[0], "ip", "route", "add", "10.77.2.0/24", "via", "10.77.1.2")
        inside(names[2], "ip", "route", "add", "10.77.1.0/24", "via", "10.77.2.1")
        # Somebody listens and never reads: what the last host does is the same both times, and little.
        sink = subprocess.Popen(["ip", "netns", "exec", names[2], sys.executable, __file__, "--sink"], stdout=subprocess.PIPE, text=True)
        sink.stdout.readline()
        run = lambda to: float(
            subprocess.run(
                ["ip", "netns", "exec", names[0], sys.executable, __file__, "--sender", to, str(packets), str(train)],
                check=True, capture_output=True, text=True,
            ).stdout
        )
        costs = sorted(run("10.77.2.2") - run("10.77.3.2") for _ in range(rounds))
        sink.kill()
        sink.wait()
        return costs[rounds // 2] / (packets * 1500 * 8 / 1e9)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--sender", to, packets, train]:
            sender(to, int(packets), int(train))
        case ["--sink"]:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(("0.0.0.0", 9))
            print("ready", flush=True)
            time.sleep(600)
        case rates:
            for rate, report, spent in relay(rates or ["100mbit", "300mbit", "full"]):
                end = report["end"]
                gbit = end["bytes"] * 8 / 1e9
                ends = end["cpu_seconds_per_gbit"]
                print(f"{rate}: {end['goodput_mbit']:.0f} Mbit/s, relay {spent / gbit:.2f} CPU seconds per Gbit; both ends together {ends:.2f}")
            for train in (1, 40):
                print(f"kernel forwarding, trains of {train}: {kernel(400_000, train):.3f} CPU seconds per Gbit")
