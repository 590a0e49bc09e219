"""Real rclone remotes for tests: a folder, and a server that can be asked for hashes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Any

from servers.boxes import BedError, free_port


class RcloneRemotes:
    """Two remotes in a configuration of their own (`config`; `env` points rclone to it).

    `plain:` is an alias of the folder `plain_dir`. `served:` is `served_dir` behind `rclone serve sftp`: a process
    that answers md5 and sha1 about what it stores. `stop` and `start` take the server away and bring it back.
    """

    def __init__(self, home: pathlib.Path) -> None:
        self.config = home / "rclone.conf"
        self.plain_dir = home / "plain"
        self.served_dir = home / "served"
        self.plain_dir.mkdir()
        self.served_dir.mkdir()
        self.port = free_port("127.0.0.1")
        self.env: dict[str, str] = {"RCLONE_CONFIG": str(self.config)}
        self._log = home / "serve.log"
        self.config.write_text(f"[plain]\ntype = alias\nremote = {self.plain_dir}\n")
        secret = self.run("obscure", "not-a-secret").stdout.strip()
        self.config.write_text(
            self.config.read_text()
            + f"[served]\ntype = sftp\nhost = 127.0.0.1\nport = {self.port}\nuser = bed\npass = {secret}\n"
            + "md5sum_command = md5sum\nsha1sum_command = sha1sum\nshell_type = unix\n"
        )
        self.start()

    def run(self, *words: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """`rclone WORDS` with this configuration."""
        environment = dict(os.environ, **self.env)
        argv = ["rclone", *words]
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )
        if check and done.returncode:
            raise BedError(f"{' '.join(argv)} ended {done.returncode}: {done.stderr}")
        return done

    def start(self) -> None:
        with open(str(self._log), "ab") as log:
            self._server = subprocess.Popen(
                ["rclone", "serve", "sftp", str(self.served_dir), "--addr", f"127.0.0.1:{self.port}"]
                + ["--user", "bed", "--pass", "not-a-secret", "--cache-dir", str(self.served_dir.parent / "cache")],
                env=dict(os.environ, **self.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for _ in range(100):
            if b"listening on" in self._log.read_bytes():
                return
            if self._server.poll() is not None:
                break
            time.sleep(0.05)
        raise BedError(f"rclone serve did not start: {self._log.read_text()[-500:]}")

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(10)
        self._log.write_bytes(b"")
