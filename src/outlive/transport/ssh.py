"""Run commands on a machine through the user's own OpenSSH.

The user's ssh configuration applies and is never written; what we need is given as options. How connections are
shared, how a command's bytes are framed, how keys are recorded: ``control``, ``framing``, ``hostkeys``. Design:
``docs/design/transport.md``.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outlive.errors import BoxLacks, HostKeyChanged, LoginRefused, PlaceError, TimeOver, Unreachable
from outlive.transport import aliases, hostkeys, keys, mux, pipes, refusals
from outlive.transport.address import Address
from outlive.transport.base import Completed
from outlive.transport.control import Control, MasterFailed
from outlive.transport.framing import Frame, Peel
from outlive.transport.streams import ProcessStream, StderrReader

CONNECT_TIMEOUT_S = 15
ALIVE_INTERVAL_S = 10
ALIVE_COUNT = 3
"""A connection whose far end is silent for ALIVE_INTERVAL_S * ALIVE_COUNT seconds is given up by ssh."""
STALE_S = 15.0
"""How long a command may take to begin over a shared connection before that connection counts as stale."""

_SESSION_REFUSED = re.compile(
    rb"session request failed|Session open refused|open failed|refused our request for connection"
)


@dataclass
class _Attempt:
    """One ssh process: what came back."""

    out: Peel
    err: Peel
    returncode: int | None
    late: bool
    refused: bool = False
    """The shared connection is there and gave no session."""

    @property
    def begun(self) -> bool:
        return self.out.begun or self.err.begun

    @property
    def words(self) -> str:
        """ssh's own words: what stands on stderr outside the command's part, and all of it if none began."""
        text = bytes(self.err.noise)
        if self.err.begun and self.err.status is None:
            text += b"\n" + bytes(self.err.body[-4096:])
        return text.decode("utf-8", "replace").replace("\r\n", "\n")


class SshExec:
    """``Exec`` over OpenSSH for an address of kind ``alias`` or ``url``.

    ``identity`` is the box's own id, None on first contact (call ``settle`` when it is known). ``state_dir`` holds our
    known_hosts and key. ``accept_new`` records an unknown host key and is for ``up`` only; a box with a recorded key
    is strict in any case. ``config_path`` replaces the user's ssh configuration. ``multiplex="no"`` never shares a
    connection; "auto" shares one where the server bears it. ``stale_s``: see STALE_S.

    A command that ends by signal N has status 128+N. A command that did not begin over a shared connection is sent
    once more over a connection of its own; one that began is never sent again.
    """

    def __init__(
        self,
        address: Address,
        *,
        state_dir: Path,
        identity: str | None = None,
        accept_new: bool = False,
        config_path: Path | None = None,
        multiplex: Literal["auto", "no"] = "auto",
        stale_s: float = STALE_S,
    ) -> None:
        if address.kind == "local":
            raise ValueError("a local address needs no ssh")
        self.address = address
        self._state_dir, self._identity, self._accept_new = state_dir, identity, accept_new
        self._config, self._multiplex, self._stale_s = config_path, multiplex, stale_s
        self._contact_dir: Path | None = None
        self._control: Control | None = None
        self._words: list[str] | None = None
        self._streams: list[ProcessStream] = []
        self._slowest_begin_s = 0.0
        self._went_stale = False

    # ---- the contract ----

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """See ``base.Exec.run``."""
        deadline = time.monotonic() + timeout_s
        shared = self._shared(deadline, timeout_s)
        refused = False
        if shared:
            attempt = self._attempt(argv, stdin, deadline, timeout_s, shared)
            refused = attempt.refused
            if attempt.begun:
                if not _SESSION_REFUSED.search(attempt.err.noise):
                    shared.bears()
                else:
                    # ssh went around by itself, at the price of a lost round trip each time.
                    shared.remember_unwanted(sure=True)
                    shared.retire()
                return self._completed(attempt, argv, timeout_s)
            shared.retire()
        attempt = self._attempt(argv, stdin, deadline, timeout_s, None)
        done = self._completed(attempt, argv, timeout_s)
        if shared and not self._went_stale:
            shared.remember_unwanted(sure=refused)
        return done

    def stream(self, argv: Sequence[str]) -> ProcessStream:
        """See ``base.Exec.stream``. Returns after the far end began; raises Unreachable like ``run`` if it does not."""
        limit_s = CONNECT_TIMEOUT_S + 2 * self._stale_limit_s()
        deadline = time.monotonic() + limit_s
        shared = self._shared(deadline, limit_s)
        stream = self._begin_stream(argv, deadline, shared) if shared else None
        if stream is None:
            if shared:
                shared.retire()
            stream = self._begin_stream(argv, deadline, None)
            assert stream is not None
        self._streams.append(stream)
        return stream

    def prove_fresh(self, timeout_s: float = 20.0) -> None:
        """See ``base.Exec.prove_fresh``. LoginRefused has ``login_lost`` set if the shared connection still works."""
        deadline = time.monotonic() + timeout_s
        attempt = self._attempt(["true"], b"", deadline, timeout_s, None)
        try:
            self._completed(attempt, ["true"], timeout_s)
        except LoginRefused as refused:
            control = self._control_or_none()
            if control and control.alive():
                over = time.monotonic() + 5.0
                probe = self._attempt(["true"], b"", over, 5.0, control, own_way=False)
                if probe.begun:
                    refused.login_lost = True
                    refused.what = f"{self.describe()} no longer accepts our key; an older connection still lives"
                    refused.safe = "what runs there goes on; pull now, while that connection lasts"
                    refused.next = [["outlive", "pull"], *refused.next]
            raise

    def describe(self) -> str:
        """See ``base.Exec.describe``."""
        return str(self.address)

    def close(self) -> None:
        """End our running streams. The shared connection ends by itself after idling (``control.PERSIST_S``)."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        if self._contact_dir:
            # A first contact's connection is named by a directory that ends here, so no later process could use it.
            import shutil

            self.disconnect()
            shutil.rmtree(self._contact_dir, ignore_errors=True)
            self._contact_dir = self._words = self._control = None

    # ---- beyond the contract ----

    def disconnect(self) -> None:
        """End the shared connection too, whoever opened it. The next command opens a new one."""
        control = self._control_or_none()
        if control:
            control.stop()

    def settle(self, box_id: str) -> None:
        """Give a first contact its identity: the accepted host key is recorded under ``box_id``, strict from now on.

        Raises HostKeyChanged when that id is recorded with another key. Does nothing else for an alias.
        """
        if self.address.kind == "url" and self._identity is None and self._contact_dir:
            pending = self._contact_dir / "known_hosts"
            hostkeys.settle(pending, box_id, self.known_hosts, self.describe())
        if self._identity is None:
            self.close()
        self._identity, self._accept_new, self._words, self._control = box_id, False, None, None

    @property
    def known_hosts(self) -> Path:
        """Our own file of host keys."""
        return self._state_dir / "known_hosts"

    def offer_key(self) -> keys.OfferedKey:
        """Return our own key, made on first use; from then on it is tried after the user's. Places it nowhere."""
        offered = keys.offer(self._state_dir)
        self._words = self._control = None
        return offered

    def argv_for_user(self, tty: bool = True, forwards: Sequence[str] = ()) -> list[str]:
        """Return ssh's argv for a person: an interactive login, or with ``forwards`` a tunnel and no command.

        ``forwards`` are ``[bind:]port:host:hostport``. Raises ValueError for anything else.
        """
        words = self._ssh_words(for_user=True)
        if forwards:
            for forward in forwards:
                if not re.fullmatch(
                    r"([A-Za-z0-9_.*-]+:|\[[0-9a-fA-F:]+\]:)?\d+:([A-Za-z0-9_.-]+|\[[0-9a-fA-F:]+\]):\d+", forward
                ):
                    raise ValueError(f"not a forward (port:host:port): {forward!r}")
            words += ["-N", "-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=none"]
            for forward in forwards:
                words += ["-L", forward]
        else:
            control = self._control_or_none()
            # A living connection lets a person in even where a fresh login is refused.
            words += ["-t"] if tty else ["-T"]
            words += ["-o", "ControlMaster=no", "-o", f"ControlPath={control.socket if control else 'none'}"]
        return [*words, "--", self.address.destination]

    # ---- how ssh is called ----

    def _ssh_words(self, for_user: bool = False) -> list[str]:
        words = ["ssh", *(["-F", str(self._config)] if self._config else [])]
        settings = (
            [] if for_user else ["BatchMode=yes", "RequestTTY=no", "ClearAllForwardings=yes", "RemoteCommand=none"]
        )
        if not for_user:
            settings += [
                "ForwardAgent=no",
                "ForwardX11=no",
                "PermitLocalCommand=no",
                "LogLevel=INFO",
                "VisualHostKey=no",
            ]
            settings += [f"ConnectTimeout={CONNECT_TIMEOUT_S}", "ConnectionAttempts=1"]
        settings += [f"ServerAliveInterval={ALIVE_INTERVAL_S}", f"ServerAliveCountMax={ALIVE_COUNT}"]
        settings += self._key_settings() + self._host_key_settings() + list(self.address.options)
        for setting in settings:
            words += ["-o", setting]
        if self.address.port:
            words += ["-p", str(self.address.port)]
        return words

    def _key_settings(self) -> list[str]:
        ours = self._state_dir / keys.NAME
        if not ours.exists():
            return []
        # Any IdentityFile given to ssh replaces its default ones, so the user's come first by name.
        asked = aliases.settings(self.address.destination, self._config, self.address.options)
        given = {o.partition("=")[2] for o in self.address.options if o.startswith("IdentityFile=")}
        theirs = [f for f in asked.get("identityfile", []) if f not in given and os.path.exists(os.path.expanduser(f))]
        return [f"IdentityFile={_quoted(f)}" for f in [*theirs, str(ours)]]

    def _host_key_settings(self) -> list[str]:
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        known, accept = self.known_hosts, self._accept_new
        settings = ["UpdateHostKeys=no", "HashKnownHosts=no", "CheckHostIP=no"]
        if self.address.kind == "alias":
            # ssh adds new keys to the first file: ours, so that the user's is only read.
            asked = aliases.settings(self.address.destination, self._config, self.address.options)
            theirs = " ".join(asked.get("userknownhostsfile", []))
            settings.append(f"UserKnownHostsFile={_quoted(str(known))} {theirs}".rstrip())
        else:
            if self._identity is None:
                if self._contact_dir is None:
                    import tempfile

                    self._contact_dir = Path(tempfile.mkdtemp(prefix="contact-", dir=self._state_dir))
                known, name = self._contact_dir / "known_hosts", hostkeys.PENDING
            else:
                name = hostkeys.alias_for(self._identity)
                # With a key on record, a key of another type must not slip in as a new one.
                accept = accept and not hostkeys.lines_for(name, known)
            settings += [f"HostKeyAlias={name}", f"UserKnownHostsFile={_quoted(str(known))}"]
            settings.append("GlobalKnownHostsFile=/dev/null")
        settings.append(f"StrictHostKeyChecking={'accept-new' if accept else 'yes'}")
        return settings

    def _base(self) -> list[str]:
        if self._words is None:
            self._words = self._ssh_words()
        return self._words

    # ---- sharing ----

    def _control_or_none(self) -> Control | None:
        if self._multiplex == "no":
            return None
        if self._control is None:
            try:
                self._control = Control(self._base(), self.address.destination)
            except PermissionError:
                self._multiplex = "no"
        return self._control

    def _shared(self, deadline: float, timeout_s: float) -> Control | None:
        """Return a shared connection that is up, or None where none can be had. Raises what a login would raise."""
        self._went_stale = False
        control = self._control_or_none()
        if control is None or control.unwanted():
            return None
        try:
            control.start(deadline)
        except FileNotFoundError:
            raise _no_ssh() from None
        except MasterFailed as failed:
            if failed.late:
                raise self._no_answer(timeout_s, failed.stderr) from None
            if refusals.find(failed.stderr) is None or re.search(r"mux|[Cc]ontrol ?(socket|path)", failed.stderr):
                return None  # the connection may be well and only its socket not: let a plain one decide
            raise self._error(failed.stderr, Unreachable("", place=self.describe())) from None
        return control

    def _stale_limit_s(self) -> float:
        return max(self._stale_s, 3 * self._slowest_begin_s)

    # ---- one ssh process ----

    def _argv(
        self, frame: Frame, argv: Sequence[str], shared: Control | None, *, end_on_stdout: bool, own_way: bool
    ) -> list[str]:
        words = [*self._base(), "-T", "-o", "ControlMaster=no"]
        words += ["-o", f"ControlPath={shared.socket if shared else 'none'}"]
        if not own_way:
            # Over the shared connection or not at all: a proxy command that fails stands where a new one would start.
            words += ["-o", "ProxyJump=none", "-o", "ProxyCommand=false"]
        return [*words, "--", self.address.destination, frame.command(argv, end_on_stdout=end_on_stdout)]

    def _attempt(
        self,
        argv: Sequence[str],
        stdin: bytes,
        deadline: float,
        timeout_s: float,
        shared: Control | None,
        own_way: bool = True,
    ) -> _Attempt:
        frame = Frame()
        out, err = Peel(frame), Peel(frame)
        started = time.monotonic()
        begin_by = min(deadline, started + self._stale_limit_s()) if shared else deadline
        try:
            process = self._start(frame, argv, shared, begin_by, end_on_stdout=True, own_way=own_way)
        except mux.SessionRefused:
            return _Attempt(out, err, None, late=False, refused=True)
        except mux.Late:
            self._went_stale = True
            return _Attempt(out, err, None, late=True)

        def until() -> float:
            return deadline if out.begun or err.begun else begin_by

        def on_stdout(data: bytes) -> None:
            fresh = not out.begun
            out.feed(data)
            if fresh and out.begun and not shared:
                self._slowest_begin_s = max(self._slowest_begin_s, time.monotonic() - started)

        def done() -> bool:
            return out.status is not None and err.status is not None

        ended = pipes.Ended(None)
        try:
            ended = pipes.drive(process, stdin, until, on_stdout, err.feed, done)
        finally:
            pipes.end(process)
        if shared and ended.late and not (out.begun or err.begun):
            self._went_stale = True
        return _Attempt(out, err, process.returncode, ended.late)

    def _start(
        self,
        frame: Frame,
        argv: Sequence[str],
        shared: Control | None,
        begin_by: float,
        *,
        end_on_stdout: bool,
        own_way: bool,
    ) -> pipes.Process:
        """Start a command: over the shared connection's own socket where that answers, else through an ssh process.

        Raises mux.SessionRefused, mux.Late, Unreachable where there is no ssh.
        """
        # On first contact through ssh itself, which hands on the variables that the user's configuration names.
        if shared and self._identity is not None:
            command = frame.command(argv, end_on_stdout=end_on_stdout)
            try:
                return mux.open_session(shared.socket, command, begin_by)
            except mux.Unusable:
                pass
        try:
            return pipes.start(self._argv(frame, argv, shared, end_on_stdout=end_on_stdout, own_way=own_way))
        except FileNotFoundError:
            raise _no_ssh() from None

    def _completed(self, attempt: _Attempt, argv: Sequence[str], timeout_s: float) -> Completed:
        status = attempt.err.status if attempt.err.status is not None else attempt.out.status
        if status is not None and attempt.out.begun and attempt.err.begun:
            return Completed(status, bytes(attempt.out.body), bytes(attempt.err.body))
        if attempt.late and attempt.begun:
            raise TimeOver(
                f"`{_shown(argv)}` on {self.describe()} was not done after {timeout_s:g} s",
                after_s=timeout_s,
                safe="it may go on there; asking again is safe",
            )
        if attempt.late:
            raise self._no_answer(timeout_s, attempt.words)
        raise self._error(attempt.words, self._unexplained(attempt))

    def _unexplained(self, attempt: _Attempt) -> PlaceError:
        place = self.describe()
        if attempt.begun:
            return Unreachable(
                f"the connection to {place} was lost while a command ran",
                place=place,
                safe="the command may have run or be running; asking again is safe",
            )
        if attempt.returncode == 255 or (attempt.returncode or 0) < 0:
            return Unreachable(f"ssh could not reach {place}", place=place, safe=refusals.SAFE)
        printed = bytes(attempt.out.noise[-300:]).decode("utf-8", "replace").strip()
        return BoxLacks(
            f"{place} lets us in and does not run commands (ssh ended with {attempt.returncode})",
            place=place,
            lacks="exec",
            safe=refusals.SAFE,
            why=[f"it printed: {printed}"] if printed else ["it printed nothing; there may be no `sh`"],
        )

    def _no_answer(self, timeout_s: float, words: str) -> PlaceError:
        return self._error(
            words,
            Unreachable(
                f"{self.describe()} did not answer within {timeout_s:g} s", place=self.describe(), safe=refusals.SAFE
            ),
        )

    def _error(self, words: str, otherwise: PlaceError) -> PlaceError:
        if not otherwise.what:
            otherwise.what = f"ssh could not reach {self.describe()}"
        error = refusals.error_for(words, self.describe(), otherwise=otherwise)
        if isinstance(error, HostKeyChanged):
            error = hostkeys.changed(error, words)
            error.next = [["outlive", "up", self.describe()]] if not error.shown else []
        elif isinstance(error, LoginRefused):
            error.next = [["outlive", "ssh", self.describe()]]
        return error

    def _begin_stream(self, argv: Sequence[str], deadline: float, shared: Control | None) -> ProcessStream | None:
        """Start and wait for the first mark; None when a shared connection did not bring it."""
        frame = Frame()
        out, err = Peel(frame), Peel(frame)
        begin_by = min(deadline, time.monotonic() + self._stale_limit_s()) if shared else deadline
        try:
            process = self._start(frame, argv, shared, begin_by, end_on_stdout=False, own_way=True)
        except (mux.SessionRefused, mux.Late):
            return None
        assert process.stdout
        reader = StderrReader(process, err)
        while not out.begun:
            left = begin_by - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                break
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            out.feed(data)
        if out.begun:
            return ProcessStream(
                process,
                _shown(argv),
                lambda rc, rest: self._stream_ended(rest, out, err, rc, argv),
                first=bytes(out.body),
                errors=reader,
            )
        late = process.poll() is None and time.monotonic() >= begin_by
        pipes.end(process)
        reader.join(1.0)
        if shared:
            return None
        self._completed(_Attempt(out, err, process.returncode, late), argv, CONNECT_TIMEOUT_S)
        raise Unreachable(f"the connection to {self.describe()} was lost", place=self.describe())

    def _stream_ended(self, rest: bytes, out: Peel, err: Peel, returncode: int, argv: Sequence[str]) -> Completed:
        if err.status is not None:
            return Completed(err.status, rest, bytes(err.body))
        attempt = _Attempt(out, err, returncode, late=False)
        raise self._error(attempt.words, self._unexplained(attempt))


def _quoted(path: str) -> str:
    """Quote a path for an ssh option, which splits at blanks and expands ``%``."""
    return '"' + path.replace("%", "%%") + '"'


def _no_ssh() -> Unreachable:
    return Unreachable("ssh is not installed on this machine", next=[["apt-get", "install", "openssh-client"]])


def _shown(argv: Sequence[str]) -> str:
    text = shlex.join(argv)
    return text if len(text) <= 80 else text[:77] + "..."
