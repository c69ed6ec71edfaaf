"""What a link for mininet does before and after its program runs: with a stand-in for mininet and for ``noctule-lab``, so without root."""

import importlib
import sys
import types
from pathlib import Path

import pytest


class Intf:
    def __init__(self, name, node=None, port=None, link=None, **_params):
        self.name, self.node, self.link, self.ip = name, node, link, None
        if node:
            node.addIntf(self, port)


class Link:
    def intfName(self, node, port):  # noqa: N802
        return f"{node.name}-eth{port}"

    def _ignore(self, *_arguments):
        pass


class Node:
    def __init__(self, name, takes=True):
        self.name, self.pid, self.intfs, self.takes = name, 1, {}, takes

    def newPort(self):  # noqa: N802
        return len(self.intfs)

    def addIntf(self, intf, port):  # noqa: N802
        if not self.takes:
            raise RuntimeError("no device is taken")
        self.intfs[port] = intf

    def delIntf(self, intf):  # noqa: N802
        self.intfs = {port: other for port, other in self.intfs.items() if other is not intf}


@pytest.fixture
def module(monkeypatch, tmp_path):
    """``noctule.mininet``, whose program writes its words to ``words`` and makes ``ended`` when its standard input is closed."""
    program = tmp_path / "noctule-lab"
    program.write_text(f"#!/bin/sh\necho \"$*\" > {tmp_path}/words\necho ready\ncat\ntouch {tmp_path}/ended\necho '{{}}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("NOCTULE_LAB_BIN", str(program))
    log = {"error": print, "warn": print}
    contents = {"": {}, ".link": {"Intf": Intf, "Link": Link}, ".log": log, ".node": {"Host": Node, "Switch": type("Switch", (), {})}}
    for name, content in contents.items():
        stub = types.ModuleType("mininet" + name)
        vars(stub).update(content)
        monkeypatch.setitem(sys.modules, "mininet" + name, stub)
    monkeypatch.delitem(sys.modules, "noctule.mininet", raising=False)
    yield importlib.import_module("noctule.mininet")
    sys.modules.pop("noctule.mininet", None)


def _words(tmp_path: Path) -> list[str]:
    return (tmp_path / "words").read_text().split()


def test_an_end_may_have_several_addresses(module, tmp_path):
    link = module.NoctuleLink(Node("h1"), Node("h2"), params1={"ip": "10.1.0.1/30,fd00::1/64"}, params2={"ip": "10.1.0.2/30"})
    assert (link.intf1.ip, link.intf1.prefixLen) == ("10.1.0.1", "30")
    link.stop()
    assert "1:h1-eth0=10.1.0.1/30,fd00::1/64" in _words(tmp_path)
    assert (tmp_path / "ended").exists() and link.counts == {}


@pytest.mark.parametrize(
    ("ip", "says"), [("10.1.0.1", "prefix length"), ("10.1.0.1/30,", "several"), ("h1/30", "several"), ("fd00::1/64", "one IP version")]
)
def test_wrong_addresses_are_refused_before_a_program_runs(module, tmp_path, ip, says):
    with pytest.raises(ValueError, match=says):
        module.NoctuleLink(Node("h1"), Node("h2"), params1={"ip": ip})
    assert not (tmp_path / "words").exists()


def test_a_host_that_refuses_its_device_leaves_neither_program_nor_device(module, tmp_path):
    first = Node("h1")
    with pytest.raises(RuntimeError, match="no device"):
        module.NoctuleLink(first, Node("h2", takes=False))
    assert (tmp_path / "ended").exists() and first.intfs == {}


def test_seeds_follow_from_names(module, tmp_path):
    def seed(*names, **properties):
        module.NoctuleLink(*map(Node, names), **properties).stop()
        words = _words(tmp_path)
        return words[words.index("--seed") + 1]

    assert seed("h1", "h2") == seed("h1", "h2") != seed("h1", "h3")
    assert seed("h1", "h2", seed=4) == "4"


def test_ipv6_addresses_have_brackets_before_a_port(module):
    assert module._endpoint("fd00::2") == "[fd00::2]:4242"
    assert module._endpoint("10.1.0.2") == "10.1.0.2:4242"


def test_a_mapping_for_the_way_back_is_written_as_the_parameters_of_both(module):
    def words(**properties):
        return module._flags(properties)

    back = {"bw": 1, "loss": 1, "jitter_reorder": True, "delay": "2ms", "max_queue_size": 9, "aqm": None, "outage": ["1s+1s", "3s+1s"]}
    given = words(rate="5mbit", delay="1ms", loss=2, rev=back)
    assert given == [
        *["--rate", "5mbit", "--delay", "1ms", "--loss", "2%"],
        *["--rev", "loss=1%,jitter-reorder=true,delay=2ms,outage=1s+1s,outage=3s+1s,rate=1mbit,queue=9p"],
    ]
    assert words(rev={}) == words() == ["--rate", "none", "--delay", "0ms"]
    assert words(rev="loss=1%")[:2] == ["--rev", "loss=1%"]
    for wrong, says in (({"delay": 5}, "unit"), ({"bw": 1, "rate": "1mbit"}, "give one"), ({"mtu": "1,loss=1"}, "comma"), ({"los": 1}, "no los;"), ({"seed": 4}, "no seed;")):
        with pytest.raises(TypeError, match=says):
            words(rev=wrong)
