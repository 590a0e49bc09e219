#!/usr/bin/env python3
"""A long, thin or broken line between two network namespaces, for kernels without netem.

  wan.py NETNS_A DEVICE_A IP_A NETNS_B DEVICE_B IP_B CONTROL [key=value ...]

`-` as a namespace is the present one. Each end is a TUN device; packets read at one end are written at the other later,
or never. Prints `up` when both ends are. A datagram of words to the unix socket CONTROL changes the line while in use:

  delay_ms=N jitter_ms=N   one way, so a ping sees twice the delay; jitter is uniform and may reorder packets
  loss=P                   probability 0..1, each packet and way
  rate_mbit=N              each way; what does not fit into queue_kbyte=N (1024) is dropped, as a router does
  down=1 down_ab=1 down_ba=1   a silent partition, whole or one way

Needs root and /dev/net/tun. Both devices vanish with this process.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import itertools
import os
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x0001 | 0x1000


@dataclasses.dataclass
class Line:
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    rate_mbit: float = 0.0
    queue_kbyte: float = 1024.0
    down: float = 0.0
    down_ab: float = 0.0
    down_ba: float = 0.0

    def change(self, words):
        """Set fields from `key=value` words; ValueError names a word that is not one, and then nothing was changed."""
        known = {field.name for field in dataclasses.fields(self)}
        pairs = [word.partition("=")[::2] for word in words]
        for key, value in pairs:
            if key not in known:
                raise ValueError(f"{key!r} is none of: {', '.join(sorted(known))}")
            float(value)
        for key, value in pairs:
            setattr(self, key, float(value))


class End:
    """One end of the line: a TUN device and the moment until which its outgoing wire is busy."""

    def __init__(self, namespace, device, address, peer):
        self.busy_until_s = 0.0
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        if namespace != "-":
            there = os.open("/run/netns/" + namespace, os.O_RDONLY)
            if libc.setns(there, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
            os.close(there)
        try:
            self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.fd, TUNSETIFF, struct.pack("16sH14x", device.encode(), IFF_TUN_NO_PI))
            subprocess.run(["ip", "address", "add", address, "peer", peer, "dev", device], check=True)
            # A long queue in front of us, so that drops are ours (queue_kbyte) and not the device's.
            subprocess.run(["ip", "link", "set", device, "up", "mtu", "1500", "txqueuelen", "2000"], check=True)
        finally:
            if namespace != "-" and libc.setns(home, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot return to the first network namespace")
            os.close(home)


class Wan:
    """The line between two ends: packets under way are a heap by the time at which they are due."""

    def __init__(self, line, end_a, end_b):
        self.line, self.end_a, self.end_b = line, end_a, end_b
        self.under_way = []
        self.order = itertools.count()

    def take(self, source):
        """Read what waits at `source` (a bounded number, so that deliveries stay on time) and decide its fate."""
        sink = self.end_b if source is self.end_a else self.end_a
        for _ in range(64):
            try:
                packet = os.read(source.fd, 65535)
            except BlockingIOError:
                return
            due_s = self.due_s(source, len(packet))
            if due_s is not None:
                heapq.heappush(self.under_way, (due_s, next(self.order), sink.fd, packet))

    def due_s(self, source, packet_bytes):
        """When this packet arrives at the other end, or None if it does not."""
        line = self.line
        if line.down or (line.down_ab if source is self.end_a else line.down_ba) or random.random() < line.loss:
            return None
        sent_s = now_s = time.monotonic()
        if line.rate_mbit:
            bytes_per_s = line.rate_mbit * 125_000
            start_s = max(now_s, source.busy_until_s)
            if (start_s - now_s) * bytes_per_s > line.queue_kbyte * 1000:
                return None
            sent_s = source.busy_until_s = start_s + packet_bytes / bytes_per_s
        return sent_s + (line.delay_ms + random.random() * line.jitter_ms) / 1000

    def deliver(self):
        while self.under_way and self.under_way[0][0] <= time.monotonic():
            _, _, fd, packet = heapq.heappop(self.under_way)
            try:
                os.write(fd, packet)
            except (BlockingIOError, OSError):
                pass  # the receiving device is full or down: the packet is lost, as on any wire

    def wait_s(self):
        return max(0.0, self.under_way[0][0] - time.monotonic()) if self.under_way else None


def obey(line, control):
    """Take one datagram; a sender with an address gets `ok` or `error ...`, so it knows when the line is changed."""
    text, sender = control.recvfrom(4096)
    try:
        line.change(text.decode(errors="replace").split())
        answer = "ok"
    except ValueError as error:
        answer = f"error {error}"
        print(f"wan: {error}", file=sys.stderr)
    if sender:
        try:
            control.sendto(answer.encode(), sender)
        except OSError as error:
            print(f"wan: no answer to {sender}: {error}", file=sys.stderr)


def main(arguments):
    if len(arguments) < 7:
        sys.exit(__doc__)
    namespace_a, device_a, ip_a, namespace_b, device_b, ip_b, control_path, *words = arguments
    line = Line()
    line.change(words)
    wan = Wan(line, End(namespace_a, device_a, ip_a, ip_b), End(namespace_b, device_b, ip_b, ip_a))
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    control.bind(control_path)
    selector = selectors.DefaultSelector()
    selector.register(wan.end_a.fd, selectors.EVENT_READ, wan.end_a)
    selector.register(wan.end_b.fd, selectors.EVENT_READ, wan.end_b)
    selector.register(control, selectors.EVENT_READ, None)
    print("up", flush=True)
    try:
        while True:
            for key, _ in selector.select(wan.wait_s()):
                if key.data is not None:
                    wan.take(key.data)
                    continue
                obey(line, control)
            wan.deliver()
    finally:
        os.unlink(control_path)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1:])
