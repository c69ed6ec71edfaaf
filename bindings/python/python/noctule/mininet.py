"""For topology scripts of mininet: links that the laboratory emulates, and hosts that run ``noctule node``.

``NoctuleLink`` needs no netem in the kernel: ``noctule-lab link`` holds the link in user space, with the laboratory's rates, delays, losses and queues.
Its devices are TUN devices, layer 3: hosts and routers are joined directly, a switch is not. ``NoctuleHost`` runs a node of an overlay; what its
neighbours are follows from the links. The programs ``noctule`` and ``noctule-lab`` are those that the variables ``NOCTULE_BIN`` and ``NOCTULE_LAB_BIN``
name, or those of ``PATH``. Mininet itself is no dependency of this package; everything here needs root, as mininet does.
"""

import ipaddress
import json
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

try:
    from mininet.link import Intf, Link
    from mininet.log import error, warn
    from mininet.node import Host, Switch
except ImportError as missing:
    raise ImportError(
        f"mininet cannot be imported ({missing}): install it (Debian: apt-get install mininet), and use a Python that sees it "
        "(python3 -m venv --system-site-packages DIR)"
    ) from missing

__all__ = ["NoctuleHost", "NoctuleIntf", "NoctuleLink", "ProgramError", "wait_until_up"]

#: Where nodes listen.
PORT = 4242
#: The TUN device of a node.
DEVICE = "noctule0"
#: Seconds that a program has to begin or to end.
PATIENCE = 20.0
#: Links have addresses from here unless their ends name some: four to a link (RFC 6598).
ADDRESSES = ipaddress.IPv4Network("100.64.0.0/10")
#: The directory of the control socket, where each host has a tmpfs of its own; and that of a node of the machine, which hosts must not see.
RUN, ETC = "/run/noctule", "/etc/noctule"


class ProgramError(RuntimeError):
    """``noctule`` or ``noctule-lab`` is missing or refused something; the message is its own."""


def _program(name: str) -> str:
    variable = name.upper().replace("-", "_") + "_BIN"
    named = os.environ.get(variable)
    found = shutil.which(named or name)
    if found is None:
        raise ProgramError(f"there is no program {named or name}: put it into a directory of PATH, or name it in {variable}")
    return os.path.abspath(found)


def _output(command: list[str]) -> str:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ProgramError(ended.stderr.strip() or f"{command[0]} ended with {ended.returncode}")
    return ended.stdout


def _addresses(text: str) -> list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
    """The addresses of an end of a link, as ``noctule-lab link`` takes them."""
    found = []
    for one in str(text).split(","):
        try:
            if "/" not in one:
                raise ValueError("it has no prefix length")
            found.append(ipaddress.ip_interface(one.strip()))
        except ValueError as why:
            raise ValueError(f"ip={text!r}: {why}; write '10.1.0.1/30', or several addresses as '10.1.0.1/30,fd00::1/64'") from None
    return found


def _endpoint(address: str) -> str:
    return f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"


class NoctuleIntf(Intf):
    """A TUN device, at an end of a ``NoctuleLink`` or of a node: it has no MAC address, and goes with its link or node."""

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing: the device was made up, with its address."""
        return {}

    def setMAC(self, _mac: str) -> str:  # noqa: N802, a name of mininet's
        """Nothing: the device is of layer 3."""
        return ""

    def delete(self) -> None:
        """Forgets the device, which goes with its link or node."""
        self.node.delIntf(self)
        self.link = None


class NoctuleLink(Link):
    """A link that ``noctule-lab link`` emulates, between two hosts.

    These parameters are written as for mininet's ``TCLink``: ``bw`` in Mbit/s, ``delay`` and ``jitter`` as ``'5ms'``, ``loss`` in percent,
    ``max_queue_size`` in packets. The default queue differs: rate times the link's own round trip (or ``bdp_rtt``), at least 24000 bytes. All others
    are flags of ``noctule-lab link`` with ``_`` for ``-``: ``rate='20mbit'``, ``loss='2%'``, ``loss_model='gilbert:10'``, ``queue='50ms'``,
    ``aqm='fq_codel'``, ``rev='rate=1mbit'`` (or a mapping with these same parameters), ``at=['10s:loss=5%']``, ``outage``, ``mtu``, ``seed`` and so on. Without
    ``bw`` and ``rate`` the rate is not limited, without ``delay`` there is none. Both directions are alike but for ``rev`` and ``rev_loss``. Without
    ``seed`` the seed follows from the names of the hosts and devices: a network has the same seeds whenever it is made.

    ``params1`` and ``params2`` may hold an ``ip`` (``'10.1.0.1/30'``, or several as ``'10.1.0.1/30,fd00::1/64'``); otherwise the ends have addresses of
    100.64.0.0/10. Mininet and the nodes use the first address of an end. MAC addresses, which mininet passes, mean nothing here. After ``stop`` ``counts``
    has what the link did in each direction (``None`` before, and if it broke).

    Raises ``ValueError`` for a switch or a wrong ``ip``, ``TypeError`` for parameters that no link has or that say one thing twice, ``ProgramError`` for what ``noctule-lab`` refuses.
    """

    _made: ClassVar[int] = 0

    def __init__(
        self,
        node1: Any,
        node2: Any,
        port1: int | None = None,
        port2: int | None = None,
        intfName1: str | None = None,  # noqa: N803
        intfName2: str | None = None,  # noqa: N803
        addr1: str | None = None,
        addr2: str | None = None,
        intf: Any = None,
        params1: Mapping[str, Any] | None = None,
        params2: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        del addr1, addr2  # Mininet makes them for every link.
        if intf not in (None, Intf, NoctuleIntf):
            raise TypeError(f"intf={intf.__name__}: the interfaces of a NoctuleLink are its own")
        for node in (node1, node2):
            if isinstance(node, Switch):
                raise ValueError(f"switch {node}: the devices of a NoctuleLink are of layer 3, it joins hosts and routers only")
        number = NoctuleLink._made
        NoctuleLink._made += 1
        first = ADDRESSES.network_address + 4 * (number % (ADDRESSES.num_addresses // 4))
        self.counts: dict[str, Any] | None = None
        ends: list[tuple[Any, int, str, list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]]] = []
        for node, port, name, params, address in (
            (node1, port1, intfName1, params1, first + 1),
            (node2, port2, intfName2, params2, first + 2),
        ):
            own = dict(params or {})
            port = own.pop("port", port)
            addresses = _addresses(own.pop("ip", None) or f"{address}/30")
            if own:
                raise TypeError(f"parameters of one end: {', '.join(own)}; an end has ip and port, what differs by direction is in rev")
            # Both ends may be at one host.
            taken = max((at + 1 for end, at, _, _ in ends if end is node), default=0)
            port = max(node.newPort(), taken) if port is None else port
            ends.append((node, port, name or self.intfName(node, port), addresses))
        here, there = (addresses[0] for _, _, _, addresses in ends)
        if here.version != there.version:
            raise ValueError(f"{here} and {there}: the first addresses of both ends must be of one IP version")
        # Names, not a number: those of a second network in a script are the same. Even numbers, since the way back has the next one.
        seed = 2 * zlib.crc32(" ".join(f"{node.name}:{name}" for node, _, name, _ in ends).encode())
        flags = _flags({"seed": seed, **properties})
        command = [_program("noctule-lab"), "link", "--json", "--until-eof", *flags]
        for node, _, name, addresses in ends:
            command += ["--between", f"{node.pid}:{name}={','.join(map(str, addresses))}"]
        # A session of its own: Ctrl-C at mininet's prompt is not for the links. The open pipe is what they live by.
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        made: list[NoctuleIntf] = []
        try:
            assert self._process.stdout is not None
            if not self._process.stdout.readline():
                code, _, text = self._end()
                raise ProgramError(text or f"noctule-lab link ended with {code}")
            for node, port, name, addresses in ends:
                interface = NoctuleIntf(name=name, node=node, port=port, link=self, moveIntfFn=self._ignore)
                interface.ip, interface.prefixLen = str(addresses[0]).split("/")
                made.append(interface)
        except BaseException:
            for interface in made:
                interface.delete()
            self._end()
            raise
        self.intf1, self.intf2 = made

    def _end(self) -> tuple[int, str, str]:
        """Ends the process; its exit code and what it has said since it was ready. A second time it does nothing."""
        process, self._process = self._process, None
        if process is None:
            return 0, "", ""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with process:
            process.stdin.close()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            line, text = process.stdout.read(), process.stderr.read().strip()
        return process.returncode, line, text

    def delete(self) -> None:
        """Ends the link and reads what it did; a second time it does nothing."""
        if self._process is None:
            return
        code, line, text = self._end()
        if line:
            self.counts = json.loads(line)
        if code != 0:
            (warn if self.counts else error)(f"*** {self}: {text or f'noctule-lab link ended with {code}'}\n")
        for interface in (self.intf1, self.intf2):
            interface.delete()

    def stop(self) -> None:
        """Ends the link, as ``delete``."""
        self.delete()


#: Properties of a link, by the flags of ``noctule-lab link``.
_PROPERTIES = frozenset(
    "rate delay jitter jitter_dist jitter_reorder loss loss_model loss_at rev_loss rev queue mtu reorder duplicate corrupt aqm trace ecn bucket policer "
    "outage at bdp_rtt seed max_lateness".split()
)


#: Those that ``--rev`` takes: the others hold for both directions, or for the program.
_BACK = _PROPERTIES - {"rev", "rev_loss", "at", "bdp_rtt", "seed", "max_lateness"}


def _ours(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the flags of ``noctule-lab link`` take them: names of ours, and numbers with the units of mininet's ``TCLink``."""
    given = {name: value for name, value in properties.items() if value is not None}
    for theirs, ours, unit in (("bw", "rate", "mbit"), ("max_queue_size", "queue", "p")):
        if theirs in given:
            if ours in given:
                raise TypeError(f"{theirs} and {ours} are the same property: give one")
            given[ours] = f"{given.pop(theirs)}{unit}"
    for name in ("loss", "rev_loss"):
        if isinstance(given.get(name), int | float):
            given[name] = f"{given[name]}%"
    for name in ("delay", "jitter"):
        if isinstance(given.get(name), int | float):
            raise TypeError(f"{name}={given[name]}: write the unit, as in {name}='5ms'")
    return given


def _texts(value: Any) -> list[str]:
    """A value, or each of several."""
    if isinstance(value, bool):
        return [str(value).lower()]
    return [str(one) for one in value] if isinstance(value, Iterable) and not isinstance(value, str) else [str(value)]


def _flags(properties: Mapping[str, Any]) -> list[str]:
    """Flags of ``noctule-lab link`` for parameters of mininet's ``TCLink`` and of our own."""
    given = _ours(properties)
    unknown = sorted(set(given) - _PROPERTIES)
    if unknown:
        raise TypeError(f"a NoctuleLink has no {', '.join(unknown)}; it has bw, max_queue_size, {', '.join(sorted(_PROPERTIES))}")
    if isinstance(given.get("rev"), Mapping):
        properties = _ours(given.pop("rev"))
        unknown = sorted(set(properties) - _BACK)
        if unknown:
            raise TypeError(f"rev: a return path has no {', '.join(unknown)}; it has bw, max_queue_size, {', '.join(sorted(_BACK))}")
        back = [f"{name.replace('_', '-')}={text}" for name, value in properties.items() for text in _texts(value)]
        for setting in back:
            if "," in setting:
                raise TypeError(f"rev: {setting}: a value on the return path cannot have a comma")
        if back:
            given["rev"] = ",".join(back)
    if "rate" not in given and "trace" not in given:
        given["rate"] = "none"
    given.setdefault("delay", "0ms")
    flags = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags += [flag] if value else []
        else:
            for text in _texts(value):
                flags += [flag, text]
    return flags


class NoctuleHost(Host):
    """A host with ``noctule node``, whose neighbours are the other ends of its links.

    ``ip`` (mininet gives ``10.0.0.N/8``) is its address in the overlay. With ``tun`` the host's programs reach the other hosts by these addresses, through
    the nodes; ``host.IP()`` is that address then. ``relay`` says whether it forwards flows of others. ``congestion`` is the node's congestion control,
    ``config`` is text to append to its file (``noctule.toml(5)``). Routes are shortest paths over hosts that relay.

    With ``end`` it runs none: it is an end, for which its neighbours know a key and an address. ``flags`` gives the words by which ``noctule send``,
    ``recv``, ``perf``, ``ping`` and ``proxy`` attach to the neighbours.

    The node starts when mininet configures the host, after all links, and ends with it. ``noctule status`` in the host shows it. ``log_file`` has its
    warnings. Raises ``ProgramError`` if it does not start.

    Its files, the secret key among them, are in a tmpfs that only the host sees, at ``/run/noctule``; they are gone when the host is. ``directory`` is
    where the script finds them.
    """

    #: Hosts that are there, and the mount points that the first of them had to make.
    _living: ClassVar[int] = 0
    _mount_points: ClassVar[list[str]] = []

    def __init__(
        self,
        name: str,
        *,
        end: bool = False,
        relay: bool = True,
        tun: bool = True,
        congestion: str = "model",
        config: str = "",
        **params: Any,
    ) -> None:
        if not params.get("inNamespace", True):
            raise ValueError(f"{name}: a NoctuleHost needs a namespace of its own")
        address = params.get("ip")
        if not address:
            raise ValueError(f"{name}: a NoctuleHost needs an ip, its address in the overlay")
        self.overlay = str(ipaddress.ip_interface(address).ip)
        self.is_node, self.relays, self.has_tun = not end, relay, tun and not end
        self._device = NoctuleIntf(name=DEVICE)
        self._device.node, (self._device.ip, self._device.prefixLen) = self, str(ipaddress.ip_interface(address)).split("/")
        self.congestion, self.extra = congestion, config
        self._node: subprocess.Popen[bytes] | None = None
        self._there = False
        noctule, masks = _program("noctule"), [RUN, *([ETC] if os.path.isdir(ETC) else [])]
        if NoctuleHost._living == 0:
            NoctuleHost._mount_points = [mask for mask in masks if not os.path.isdir(mask)]
        super().__init__(name, **{**params, "privateDirs": [*params.get("privateDirs", []), *masks]})
        NoctuleHost._living += 1
        self._there = True
        try:
            # What the host sees as RUN: it has mounts of its own.
            self.directory = Path(f"/proc/{self.pid}/root{RUN}")
            self.key_file = Path(RUN, "key")
            self.config_file, self.log_file, self.socket = (self.directory / file for file in ("node.toml", "log", "node.sock"))
            if not self.directory.is_mount():
                raise ProgramError(f"{name}: no tmpfs could be mounted at {RUN} in the host")
            self.directory.chmod(0o700)
            self.public_key = _output([noctule, "keygen", "-o", str(self.directory / "key")]).split()[-1]
        except BaseException:
            self.terminate()
            raise

    def config(self, mac: str | None = None, ip: str | None = None, **params: Any) -> dict[str, Any]:
        """Configures the host, but for ``ip`` (which is the overlay's) and ``mac``, and starts its node."""
        del mac, ip
        result: dict[str, Any] = super().config(**params)
        self.start_node()
        return result

    def defaultIntf(self) -> Any:  # noqa: N802, a name of mininet's
        """Where programs reach this host: the device of its node, with its address in the overlay, if it has ``tun``; else its first link."""
        return self._device if self.has_tun else super().defaultIntf()

    def neighbours(self) -> dict["NoctuleHost", list[tuple[str, str]]]:
        """The hosts at the other ends of its links, each with the addresses of both ends of each link: this host's first."""
        found: dict[NoctuleHost, list[tuple[str, str]]] = {}
        for interface in self.intfList():
            link = interface.link
            if link is None:
                continue
            here, there = (link.intf1, link.intf2) if link.intf1 is interface else (link.intf2, link.intf1)
            if isinstance(there.node, NoctuleHost) and there.node is not self and here.ip and there.ip:
                found.setdefault(there.node, []).append((here.ip, there.ip))
        return found

    def flags(self) -> list[str]:
        """The words by which an end attaches to all its neighbours that run a node."""
        words = ["--address", self.overlay, "--key", str(self.key_file)]
        for host, links in self.neighbours().items():
            if host.is_node:
                words += ["--via", _endpoint(links[0][1]), "--via-key", host.public_key]
        return words

    def status(self) -> dict[str, Any]:
        """What ``noctule status --json`` says of its node."""
        report: dict[str, Any] = json.loads(_output([_program("noctule"), "status", "--json", "--socket", str(self.socket)]))
        return report

    def start_node(self) -> None:
        """Starts the node, or starts it anew by the links that there are now; nothing for a host without one."""
        if not self.is_node:
            return
        self.stop_node()
        self.config_file.write_text(self._file())
        # The node dies with this program, however that ends. `mnexec -a` goes where the host's shell is: its network and its mounts.
        command = ["mnexec", "-a", str(self.pid), "setpriv", "--pdeathsig", "TERM"]
        command += [_program("noctule"), "node", "--log-level", "warn", "--config", f"{RUN}/{self.config_file.name}"]
        with open(self.log_file, "ab") as log:
            node = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._node = node
        deadline = time.monotonic() + PATIENCE
        while not self.socket.exists():
            if node.poll() is not None or time.monotonic() > deadline:
                self.stop_node()
                raise ProgramError(f"{self.name}: noctule node did not start: {self.log_file.read_text().strip()}")
            time.sleep(0.02)

    def stop_node(self) -> None:
        """Ends the node; nothing where none runs."""
        node, self._node = self._node, None
        if node is None:
            return
        node.terminate()
        try:
            node.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
        self.socket.unlink(missing_ok=True)

    def terminate(self) -> None:
        """Ends the node and the host, and the node's files with them."""
        self.stop_node()
        super().terminate()
        if not self._there:
            return
        self._there = False
        NoctuleHost._living -= 1
        if NoctuleHost._living == 0:
            for path in NoctuleHost._mount_points:
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # Somebody else uses it meanwhile.

    def _file(self) -> str:
        lines = ["[node]", f'name = "{self.name}"', 'key = "key"', f'addresses = ["{self.overlay}"]']
        lines += [f"relay = {str(self.relays).lower()}", f'congestion = "{self.congestion}"']
        neighbours = self.neighbours()
        for host, links in neighbours.items():
            lines += ["", "[[neighbour]]", f'name = "{host.name}"', f'key = "{host.public_key}"', f'addresses = ["{host.overlay}"]']
            # The one that starts later calls, and finds the other listening.
            if host._node is not None:
                further = ", ".join(f'"{here},{_endpoint(there)}"' for here, there in links[1:])
                lines += [f'endpoint = "{_endpoint(links[0][1])}"', f"paths = [{further}]"]
        for host, via in self._routes().items():
            if self.has_tun and host.has_tun:
                lines += ["", "[[remote]]", f'name = "{host.name}"', f'key = "{host.public_key}"', f'addresses = ["{host.overlay}"]']
            lines += ["", "[[route]]", f'to = "{host.overlay}"', f'via = "{via.name}"']
        if self.has_tun:
            lines += ["", "[tun]", f'name = "{DEVICE}"', f'addresses = ["{self._device.ip}/{self._device.prefixLen}"]']
        lines += ["", "[control]", f'socket = "{RUN}/node.sock"', "", self.extra]
        return "\n".join(lines)

    def _routes(self) -> dict["NoctuleHost", "NoctuleHost"]:
        """The neighbour that leads to each host that is no neighbour, on a shortest path over hosts that relay."""
        first = {host: host for host in self.neighbours()}
        reached = list(first)
        for host in reached:
            if host.is_node and host.relays:
                for further in host.neighbours():
                    if further is not self and further not in first:
                        first[further] = first[host]
                        reached.append(further)
        return {host: via for host, via in first.items() if host is not via}


def wait_until_up(net: Any, seconds: float = 30.0) -> None:
    """Waits until each node of ``net`` has a session with all neighbours that run a node. Raises ``TimeoutError``, and says which has not."""
    deadline = time.monotonic() + seconds
    for host in net.hosts:
        if not isinstance(host, NoctuleHost) or not host.is_node:
            continue
        wanted = {other.name for other in host.neighbours() if other.is_node}
        while True:
            there = {node["name"] for node in host.status()["nodes"] if node.get("session")}
            if wanted <= there:
                break
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(wanted - there))
                log = host.log_file.read_text().strip() or "empty"
                raise TimeoutError(f"{host.name} has no session with {missing} after {seconds} s; its log: {log}")
            time.sleep(0.05)
