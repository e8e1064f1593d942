"""Machines of a small cluster on this one: network namespaces, each with an address and a disk.

They are joined by a bridge, from which one can be cut off. Each sees its own empty disk at the path
`disk`; only the first sees this machine's.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Machines:
    """Network namespaces 0 to number - 1 with addresses 10.213.0.1 and up."""

    def __init__(self, number: int, disk: Path):
        self.number, self.disk = number, disk
        self._stem = f"safecritic-{os.getpid()}"
        self._processes: list[subprocess.Popen] = []

    @property
    def hub(self) -> str:
        return f"{self._stem}-hub"

    def name(self, machine: int) -> str:
        return f"{self._stem}-{machine}"

    def address(self, machine: int) -> str:
        return f"10.213.0.{machine + 1}"

    def connect(self) -> None:
        """Make the namespaces and their network."""
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for machine in range(self.number):
            name, port = self.name(machine), f"port{machine}"
            _ip("netns", "add", name)
            ends = ("link", "add", "eth0", "netns", name, "type", "veth")
            _ip(*ends, "peer", "name", port, "netns", self.hub)
            _ip("-n", name, "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", name, "link", "set", link, "up")
            _ip("-n", self.hub, "link", "set", port, "master", "bridge", "up")

    def start(self, machine: int, command: list[str], **options: Any) -> subprocess.Popen:
        """Start a command on a machine; all but the first get a disk of their own."""
        words = ["ip", "netns", "exec", self.name(machine)]
        if machine:  # `ip netns exec` has a view of the disks of its own
            mount = f'mount -t tmpfs none "{self.disk}" && cd "{self.disk}" && exec "$@"'
            words += ["sh", "-c", mount, "sh"]
        process = subprocess.Popen([*words, *command], **options)
        self._processes.append(process)
        return process

    def pids(self, machine: int) -> list[int]:
        """Return the processes on a machine."""
        return [int(word) for word in _ip("netns", "pids", self.name(machine)).split()]

    def cut_off(self, machine: int) -> None:
        """Pull the plug of a machine's network."""
        _ip("-n", self.hub, "link", "set", f"port{machine}", "down")

    def close(self) -> None:
        """End every process on the machines and remove them."""
        for machine in range(self.number):
            for _ in range(20):
                with contextlib.suppress(OSError):
                    if not (pids := self.pids(machine)):
                        break
                    for pid in pids:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                time.sleep(0.1)
        for process in self._processes:
            process.wait()
        for name in (self.hub, *map(self.name, range(self.number))):
            with contextlib.suppress(OSError):
                _ip("netns", "delete", name)


@contextlib.contextmanager
def machines(number: int, disk: Path) -> Iterator[Machines]:
    """Yield machines; skip the test, with the reason, where the system allows none."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs network namespaces: root and iproute2")
    made = Machines(number, disk)
    try:
        try:
            made.connect()
            tried = made.start(number - 1, ["true"], stderr=subprocess.PIPE, text=True)
            if tried.communicate()[1] or tried.returncode:
                pytest.skip("needs network namespaces with disks of their own (mount)")
        except OSError as error:
            pytest.skip(f"needs network namespaces: {error}")
        yield made
    finally:
        made.close()
