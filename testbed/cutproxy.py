#!/usr/bin/env python3
"""A TCP link that fails on purpose: cutproxy.py LISTEN_IP:PORT TARGET_IP:PORT CONTROL [key=value ...]

It forwards each connection to TARGET and, once listening, prints `listening IP PORT` (PORT 0 takes a free one).
CONTROL is the path of a unix datagram socket; a datagram with words changes the link while it is in use:

  cut_up=N cut_down=N      end a connection when exactly N bytes have passed from (up) or to (down) the client; 0: never
  stall_up=N stall_down=N  after N bytes pass nothing more that way, but keep the connection: silence; 0: never
  stall=1                  silence both ways now (stall=0 goes on where it stopped; no byte is lost)
  drop_up=1 drop_down=1    read and throw away what comes that way: the other end believes it was sent
  rate_kbyte=N             kilobytes per second, each way and connection; 0: unlimited
  refuse=1                 end new connections at once
  rst=1                    ends are a reset instead of an orderly close
  cut                      end all connections now
  stats                    answer the sender (bound to its own path) with JSON: connections, open, up, down (bytes)

Counts are per connection and start with it. A word that is not known is answered by `error ...` and changes nothing.
"""

import asyncio
import dataclasses
import json
import os
import socket
import struct
import sys


@dataclasses.dataclass
class Link:
    """The state of the link, as last asked for over the control socket."""

    cut_up: int = 0
    cut_down: int = 0
    stall_up: int = 0
    stall_down: int = 0
    stall: int = 0
    drop_up: int = 0
    drop_down: int = 0
    rate_kbyte: int = 0
    refuse: int = 0
    rst: int = 0


def parsed(words, link):
    """A changed copy of `link`; ValueError names the word that is not one of ours."""
    known = {field.name for field in dataclasses.fields(Link)}
    changes = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in known or not value.isdigit():
            raise ValueError(f"{word!r} is none of: {', '.join(sorted(known))} =NUMBER, cut, stats")
        changes[key] = int(value)
    return dataclasses.replace(link, **changes)


class Connection:
    """One client, its own connection to the target, and the two directions between them."""

    def __init__(self, proxy, client, target):
        self.proxy, self.client, self.target = proxy, client, target
        self.task = None

    async def serve(self):
        ways = [
            asyncio.ensure_future(self.pump(self.client, self.target, "up")),
            asyncio.ensure_future(self.pump(self.target, self.client, "down")),
        ]
        try:
            # A way that ended in an orderly manner closes its half; a cut ends both.
            await asyncio.gather(*ways)
        except (OSError, EOFError):
            pass
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.close()

    def close(self):
        for end in (self.client, self.target):
            if self.proxy.link.rst and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()

    async def pump(self, source, sink, way):
        loop = asyncio.get_running_loop()
        passed = 0
        while True:
            link = self.proxy.link
            cut, stall = getattr(link, "cut_" + way), getattr(link, "stall_" + way)
            if link.stall or (stall and passed >= stall):
                await self.proxy.changed()
                continue
            if cut and passed >= cut:
                raise EOFError("cut")
            # Never read more than may pass, so that a cut or a silence falls on the exact byte.
            room = min([65536] + [limit - passed for limit in (cut, stall) if limit])
            if link.rate_kbyte:
                room = min(room, max(1, link.rate_kbyte * 1000 // 20))
            data = await self.readable(loop, source, room)
            if data is None:
                continue  # the link changed while we waited
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            if not getattr(link, "drop_" + way):
                await loop.sock_sendall(sink, data)
            passed += len(data)
            self.proxy.passed[way] += len(data)
            if link.rate_kbyte:
                await asyncio.sleep(len(data) / (link.rate_kbyte * 1000))

    async def readable(self, loop, source, room):
        """Up to `room` bytes, or None when the link was changed first: what was not read yet stays in the kernel."""
        got = asyncio.ensure_future(loop.sock_recv(source, room))
        changed = asyncio.ensure_future(self.proxy.changed())
        try:
            await asyncio.wait({got, changed}, return_when=asyncio.FIRST_COMPLETED)
            if got.done():
                return got.result()
            return None
        finally:
            got.cancel()
            changed.cancel()


class Proxy:
    """The listener, its connections and the control socket."""

    def __init__(self, link):
        self.link = link
        self.connections = set()
        self.accepted = 0
        self.passed = {"up": 0, "down": 0}
        self.waiters = set()

    async def changed(self):
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        try:
            await waiter
        finally:
            self.waiters.discard(waiter)

    def command(self, text):
        """Carry out one datagram; the answer for a sender that wants one."""
        words = text.split()
        if words == ["stats"]:
            return json.dumps(dict(self.passed, connections=self.accepted, open=len(self.connections)))
        if words == ["cut"]:
            for connection in list(self.connections):
                connection.task.cancel()
            return "ok"
        try:
            self.link = parsed(words, self.link)
        except ValueError as error:
            return f"error {error}"
        for waiter in list(self.waiters):
            if not waiter.done():
                waiter.set_result(None)
        return "ok"

    def controlled(self, control):
        try:
            text, sender = control.recvfrom(4096)
        except BlockingIOError:
            return
        answer = self.command(text.decode(errors="replace"))
        if sender:
            try:
                control.sendto(answer.encode(), sender)
            except OSError as error:
                print(f"cutproxy: no answer to {sender}: {error}", file=sys.stderr)
        elif answer.startswith("error"):
            print(f"cutproxy: {answer}", file=sys.stderr)

    async def accept(self, listener, target):
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            self.accepted += 1
            if self.link.refuse:
                client.close()
                continue
            client.setblocking(False)
            onward = socket.socket()
            for end in (client, onward):
                # what passes is held back by this link's settings alone, as ssh's own sockets hold nothing back
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            onward.setblocking(False)
            connection = Connection(self, client, onward)
            connection.task = asyncio.ensure_future(self.one(connection, target))
            self.connections.add(connection)

    async def one(self, connection, target):
        try:
            await asyncio.get_running_loop().sock_connect(connection.target, target)
            await connection.serve()
        except OSError as error:
            print(f"cutproxy: {target}: {error}", file=sys.stderr)
        finally:
            connection.close()
            self.connections.discard(connection)


def endpoint(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


async def main(listen, target, control_path, words):
    proxy = Proxy(parsed(words, Link()))
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    control.setblocking(False)
    control.bind(control_path)
    asyncio.get_running_loop().add_reader(control, proxy.controlled, control)
    listener = socket.create_server(endpoint(listen), backlog=64)
    listener.setblocking(False)
    print("listening", *listener.getsockname(), flush=True)
    try:
        await proxy.accept(listener, endpoint(target))
    finally:
        os.unlink(control_path)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
    except KeyboardInterrupt:
        pass
    except ValueError as error:
        sys.exit(f"cutproxy: {error}")
