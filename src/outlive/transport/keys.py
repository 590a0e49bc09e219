"""Our own login key: made when no key of the user's works, offered, and placed nowhere without being asked."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from outlive.errors import Unreachable

NAME = "id_ed25519"


@dataclass(frozen=True)
class OfferedKey:
    """``path`` of the private key on this machine, and the line for an authorized_keys file or a console's form."""

    path: Path
    public_line: str


def offer(state_dir: Path) -> OfferedKey:
    """Return our own key, made on first use (ed25519, no passphrase, 0600). The same key each time.

    Raises Unreachable when ssh-keygen is missing or fails.
    """
    import socket

    path = state_dir / NAME
    if not path.exists():
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = state_dir / f".{NAME}.{os.getpid()}"
        comment = f"outlive@{socket.gethostname()}"
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(aside)]
        try:
            subprocess.run(argv, check=True, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Unreachable("ssh-keygen is not installed on this machine") from None
        except subprocess.CalledProcessError as error:
            raise Unreachable(
                "no login key could be made", why=[error.stderr.decode("utf-8", "replace").strip()]
            ) from None
        # The public half first: whoever sees the private key finds its line. link() keeps the first of two makers.
        os.replace(f"{aside}.pub", f"{path}.pub.{os.getpid()}")
        try:
            os.link(aside, path)
            os.replace(f"{path}.pub.{os.getpid()}", f"{path}.pub")
        except FileExistsError:
            os.unlink(f"{path}.pub.{os.getpid()}")
        os.unlink(aside)
    done = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, timeout=20, check=True)
    key = " ".join(done.stdout.decode().split()[:2])
    return OfferedKey(path, f"{key} outlive@{socket.gethostname()}")
