"""Hosts and links of mininet, under mininet itself: as root only, in a process of its own, for what mininet changes of a process."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Where Debian puts mininet; an environment of its own does not see it.
DEBIAN = "/usr/lib/python3/dist-packages"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target")) / "debug"
#: A chain of three hosts with loss on both links; what a case does with it comes after.
CHAIN = f"""
import json, subprocess, sys, time
sys.path.append({DEBIAN!r})
from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import Topo
from noctule.mininet import NoctuleHost, NoctuleLink, ProgramError, wait_until_up

class Chain(Topo):
    def build(self, end=False):
        self.addHost("h1", end=end)
        self.addHost("h2")
        self.addHost("h3", end=end)
        self.addLink("h1", "h2", bw=50, delay="5ms", loss=3, max_queue_size=200)
        self.addLink("h2", "h3", rate="50mbit", delay="5ms", loss="5%", queue="50ms")

def chain(**options):
    return Mininet(topo=Chain(**options), host=NoctuleHost, link=NoctuleLink, controller=None)
"""


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "mininet runs as root only"
    if importlib.util.find_spec("mininet") is None and not os.path.isdir(f"{DEBIAN}/mininet"):
        return "mininet is not installed: apt-get install --no-install-recommends mininet"
    if importlib.util.find_spec("distutils") is None:
        return "mininet 2.3 needs distutils, which Python 3.12 no longer has"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    for program in ("noctule", "noctule-lab"):
        if not (BUILT / program).is_file():
            return f"{BUILT / program} is not built: cargo build -p noctule-node -p noctule-lab"
    for program in ("mnexec", "ping", "setpriv"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return None


pytestmark = pytest.mark.skipif(_missing() is not None, reason=_missing() or "")


@pytest.fixture
def start(tmp_path):
    """Starts a script with ``CHAIN`` before it, whose processes and files can be told from all others; in the end none may be left."""
    environment = {**os.environ, "NOCTULE_BIN": str(BUILT / "noctule"), "NOCTULE_LAB_BIN": str(BUILT / "noctule-lab")}
    # Here also where nodes put their files, which their command lines name.
    environment["TMPDIR"] = environment["XDG_CONFIG_HOME"] = str(tmp_path)
    started = []

    def run(script: str) -> subprocess.Popen[str]:
        (tmp_path / "script.py").write_text(CHAIN + script)
        command = [sys.executable, str(tmp_path / "script.py")]
        process = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
    deadline = time.monotonic() + 20
    while _with(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _with(str(tmp_path)) == []


def _with(mark: str) -> list[str]:
    """Processes with this in their environment: whatever the script has started."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (directory / "environ").read_bytes() and int(directory.name) != os.getpid():
                found.append(f"{directory.name}: {(directory / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


def _finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return output


def test_programs_reach_each_other_through_the_nodes_of_a_lossy_chain(start, tmp_path):
    """Each ping would be lost with a probability of 15 % without the nodes."""
    output = _finish(
        start(
            """
net = chain()
net.start()
try:
    wait_until_up(net)
    h1, h2, h3 = net.get("h1", "h2", "h3")
    print(h1.cmd("ping -c 20 -i 0.05 -W 5 " + h3.IP()))
    link = net.links[1]
    net.configLinkStatus("h2", "h3", "down")
    time.sleep(0.3)
    net.configLinkStatus("h2", "h3", "up")
    wait_until_up(net)
    print(h1.cmd("ping -c 3 -i 0.2 -W 5 " + h3.IP()))
    # At mininet's prompt a host's name stands for this address.
    assert h3.defaultIntf().updateIP() == h3.IP() == "10.0.0.3"
    print(h2.cmd(f"{subprocess.os.environ['NOCTULE_BIN']} status"))
finally:
    net.stop()
print(json.dumps([link.counts for link in net.links]))
"""
        )
    )
    received = [int(number) for number in re.findall(r"(\d+) received", output)]
    assert received[0] >= 19 and received[1] >= 2, output
    assert re.search(r"^h2 10\.0\.0\.2 up", output, re.MULTILINE), output
    for counts in json.loads(output.splitlines()[-1]):
        for direction in (counts["forward"], counts["backward"]):
            gone = direction["delivered"] + direction["lost"] + direction["dropped"] + direction["under_way"]
            assert direction["sent"] == gone > 20


def test_a_file_crosses_a_relay_between_two_ends_whole(start, tmp_path):
    data = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "into").mkdir()
    _finish(
        start(
            """
import os
net = chain(end=True)
net.start()
try:
    h1, h3 = net.get("h1", "h3")
    noctule = os.environ["NOCTULE_BIN"]
    # The sender says in the end that every hash was verified at the other side.
    receiver = h3.popen([noctule, "recv", "--into", "into", "--allow", h1.public_key, *h3.flags()], stdin=subprocess.DEVNULL, text=True)
    told = next((line for line in receiver.stderr if line.startswith("receiving into")), None)
    assert told, "the receiver has ended"
    sent = h1.popen([noctule, "send", "file", h3.overlay, "--peer-key", h3.public_key, *h1.flags()], stdin=subprocess.DEVNULL)
    text = sent.communicate(timeout=60)
    assert sent.returncode == 0, text
    receiver.terminate()
    receiver.communicate()
finally:
    net.stop()
assert all(link.counts["forward"]["lost"] > 0 for link in net.links), net.links
"""
        )
    )
    assert (tmp_path / "into" / "file").read_bytes() == data


def test_a_killed_script_leaves_neither_processes_nor_keys(start, tmp_path):
    process = start("net = chain()\nnet.start()\nprint('up', flush=True)\ntime.sleep(1000)\n")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    assert len([line for line in _with(str(tmp_path)) if "'node'" in line or "node.toml" in line]) == 3
    process.send_signal(signal.SIGKILL)
    # Keys are in mounts of the hosts alone. For processes the fixture looks.
    assert not Path("/run/noctule/key").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_what_no_link_can_be_is_refused(start):
    _finish(
        start(
            """
from mininet.node import OVSSwitch
net = Mininet(host=Host, link=NoctuleLink, controller=None)
h1, h2 = net.addHost("h1"), net.addHost("h2")
def refused(kind, names, **properties):
    try:
        net.addLink(h1, h2, **properties)
    except kind as why:
        assert names in str(why), why
    else:
        raise AssertionError(names)
refused(TypeError, "use_hfsc", use_hfsc=True)
refused(TypeError, "give one", bw=1, rate="1mbit")
refused(TypeError, "unit", delay=5)
refused(ProgramError, "1000%", loss=1000)
refused(ProgramError, "queue", max_queue_size=5)
refused(ProgramError, "15 at most", intfName1="a-long-device-name")
def starts(*_arguments, **_options):
    raise AssertionError("a program was started")
popen, subprocess.Popen = subprocess.Popen, starts
refused(ValueError, "prefix length", params1={"ip": "10.1.0.1"})
refused(ValueError, "several", params1={"ip": "10.1.0.1/30,"})
refused(ValueError, "one IP version", params1={"ip": "fd00::1/64"})
subprocess.Popen = popen
# A host that does not take the device: neither the process nor the first end stays.
h2.addIntf = lambda *_arguments, **_options: 1 / 0
before = set(h1.nameToIntf)
refused(ZeroDivisionError, "", params1={"ip": "10.9.7.1/30"}, params2={"ip": "10.9.7.2/30"})
del h2.addIntf
assert set(h1.nameToIntf) == before and "10.9.7" not in h1.cmd("ip address"), h1.cmd("ip address")
switch = object.__new__(OVSSwitch)
switch.name = "s1"
try:
    NoctuleLink(h1, switch)
except ValueError as why:
    assert "layer 3" in str(why)
else:
    raise AssertionError("a switch")
# What mininet calls hosts without noctule work over such links, too; h1 has two of them.
net.addLink(h1, h2)
net.addLink(h1, h2, params1={"ip": "10.9.9.1/30"}, params2={"ip": "10.9.9.2/30"})
net.start()
assert "1 received" in h1.cmd("ping -c 1 -W 5 " + h2.IP()), "default addresses"
assert "1 received" in h1.cmd("ping -c 1 -W 5 10.9.9.2"), "own addresses"
net.stop()
"""
        )
    )


def test_nodes_reach_each_other_over_ipv6_and_links_side_by_side(start):
    """The seeds of a second network in the same script are those of the first."""
    output = _finish(
        start(
            """
def run():
    net = Mininet(host=NoctuleHost, link=NoctuleLink, controller=None)
    h1, h2 = net.addHost("h1"), net.addHost("h2")
    for number in (1, 2):
        ends = [{"ip": f"fd00:{number}::{end}/64,10.1.{number}.{end}/24"} for end in (1, 2)]
        net.addLink(h1, h2, params1=ends[0], params2=ends[1])
    commands = [link._process.args for link in net.links]
    net.start()
    try:
        wait_until_up(net)
        assert "1 received" in h1.cmd("ping -c 1 -W 5 " + h2.IP())
        assert "1 received" in h1.cmd("ping -c 1 -W 5 10.1.2.2")
        print(h2.config_file.read_text())
    finally:
        net.stop()
    assert not h2.directory.exists()
    return [command[command.index("--seed") + 1] for command in commands]

seeds = run()
assert len(set(seeds)) == 2 and run() == seeds
"""
        )
    )
    assert 'endpoint = "[fd00:1::1]:4242"' in output and 'paths = ["fd00:2::2,[fd00:2::1]:4242"]' in output, output
