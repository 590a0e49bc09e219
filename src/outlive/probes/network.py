"""Interfaces, the way to another box, and proxies: asked by short connections, each with a deadline."""

import errno
import os
import socket
import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_DONT_FRAGMENT = 2  # IP_PMTUDISC_DO
_IP_MTU_DISCOVER = 10


def network(peers: Sequence[str] = (), timeout_s: float = 3.0, sys: str = "/sys/class/net") -> Dict[str, Any]:
    """Return interfaces with their MTU, proxies with whether they answer, and what each peer ``host:port`` said."""
    return {
        "interfaces": interfaces(sys),
        "peers": [peer(word, timeout_s) for word in peers],
        "proxies": proxies(dict(os.environ), min(2.0, timeout_s)),
        "why_unknown": "",
    }


def interfaces(sys: str = "/sys/class/net") -> List[Dict[str, Any]]:
    """Return name, MTU and state of each interface; [] where that cannot be read."""
    found = []
    try:
        names = sorted(os.listdir(sys))
    except OSError:
        return []
    for name in names:
        facts: Dict[str, Any] = {"name": name, "mtu": None, "state": None}
        for key, file in (("mtu", "mtu"), ("state", "operstate")):
            try:
                with open(os.path.join(sys, name, file)) as text:
                    word = text.read().strip()
                facts[key] = int(word) if key == "mtu" else word
            except (OSError, ValueError):
                pass
        found.append(facts)
    return found


def peer(word: str, timeout_s: float) -> Dict[str, Any]:
    """Return how ``host:port`` answers (``open closed silent unknown``), from where, and whether full frames arrive."""
    host, _, port = word.rpartition(":")
    host = host.strip("[]")
    found: Dict[str, Any] = {"peer": word, "tcp": "unknown", "why": "", "frames": "unknown", "mtu": None, "local": None}
    try:
        address = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except (OSError, ValueError, OverflowError, IndexError) as error:
        return dict(found, tcp="unknown", why="no address: %s" % error)
    ip = str(address[0])
    found["tcp"], found["why"] = connect(ip, int(port), timeout_s)
    found["local"] = _source(ip)
    mtu = _route_mtu(ip)
    found["mtu"] = mtu
    if mtu is not None:
        small = _echo(ip, 56, timeout_s / 3.0)
        if small:
            found["frames"] = "ok" if _echo(ip, mtu - 28, timeout_s / 3.0) else "lost"
    return found


def connect(host: str, port: int, timeout_s: float) -> Tuple[str, str]:
    """Return (``open closed silent unknown``, reason) of one TCP connection."""
    try:
        socket.create_connection((host, port), timeout_s).close()
        return "open", ""
    except socket.timeout:
        return "silent", "no answer within %g s" % timeout_s
    except ConnectionRefusedError:
        return "closed", "connection refused"
    except OSError as error:
        unreachable = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
        return "silent" if unreachable else "unknown", str(error.strerror or error)


def _source(ip: str) -> Optional[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ip, 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return None


def _route_mtu(ip: str) -> Optional[int]:
    """Return the MTU that the kernel would use towards ``ip``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DONT_FRAGMENT)
            probe.connect((ip, 9))
            return int(probe.getsockopt(socket.IPPROTO_IP, 14))  # IP_MTU
        except OSError:
            return None


def _echo(ip: str, size: int, timeout_s: float) -> bool:
    """Return whether an unfragmented echo with ``size`` bytes comes back; False too where we may not ask."""
    for attempt in range(2):
        if _one_echo(ip, size, timeout_s, attempt + 1):
            return True
    return False


def _one_echo(ip: str, size: int, timeout_s: float, number: int) -> bool:
    import time

    raw = False
    try:
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    except OSError:
        try:
            probe = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
            raw = True
        except OSError:
            return False
    with probe:
        ident = os.getpid() & 0xFFFF
        body = os.urandom(8) + b"\0" * max(0, size - 8)
        head = struct.pack("!BBHHH", 8, 0, 0, ident, number)
        packet = struct.pack("!BBHHH", 8, 0, _checksum(head + body), ident, number) + body
        try:
            probe.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, 3)  # IP_PMTUDISC_PROBE: ask, whatever was learned
            probe.sendto(packet, (ip, 0))
            end_s = time.monotonic() + timeout_s
            while True:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                probe.settimeout(left_s)
                answer = probe.recvfrom(65535)[0]
                answer = answer[(answer[0] & 15) * 4 :] if raw else answer
                if answer[:1] == b"\0" and answer[8:16] == body[:8]:
                    return True
        except OSError:
            return False


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = int(sum(struct.unpack("!%dH" % (len(data) // 2), data)))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def proxies(environ: Dict[str, str], timeout_s: float) -> Dict[str, Any]:
    """Return which proxies are set, whether they answer, and what ``no_proxy`` spares. Passwords are not told."""
    from urllib.parse import urlsplit

    found: Dict[str, Dict[str, Any]] = {}
    for name in PROXY_NAMES:
        value = environ.get(name)
        if not value:
            continue
        parts = urlsplit(value if "//" in value else "http://" + value)
        try:
            where = (parts.hostname or "", parts.port or 80)
        except ValueError:
            where = ("", 0)
        text = "%s:%d" % where
        if text in found:
            found[text]["names"].append(name)
            continue
        state, why = connect(where[0], where[1], timeout_s) if where[0] else ("unknown", "not a URL")
        found[text] = {"proxy": text, "names": [name], "state": state, "why": why}
    spared = {name: environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    return {"set": list(found.values()), "no_proxy": spared}
