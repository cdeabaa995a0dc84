"""Disk images on loop devices: power loss and full disks without harming the machine's own disk.

Power loss: the filesystem shutdown ioctl with "no log flush" makes ext4 forget what was not synced, then every call
fails with EIO; after unmounting and mounting again the file system is what a machine finds that lost power.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
UNMOUNT_TRIES = 50
PROBE_MIB = 16
MIB = 1024 * 1024


class DiskImage:
    """An ext4 file system in a sparse file, mounted at `mount_point`."""

    def __init__(self, image: Path, mount_point: Path, size_mib: int) -> None:
        self.image = image
        self.mount_point = mount_point
        self._mounted = False
        with image.open("wb") as file:
            file.truncate(size_mib * MIB)
        run("mkfs.ext4", "-q", "-m", "0", str(image))
        mount_point.mkdir()
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", str(self.image), str(self.mount_point))
        self._mounted = True

    def unmount(self) -> None:
        """Tries until the last process let go of it."""
        for _ in range(UNMOUNT_TRIES):
            if not self._mounted:
                return
            answer = subprocess.run(["umount", str(self.mount_point)], capture_output=True)
            if answer.returncode == 0:
                self._mounted = False
                return
            time.sleep(0.1)
        raise OSError(errno.EBUSY, f"cannot unmount {self.mount_point}")

    def lose_power(self) -> None:
        """What was not synced is gone; the process on it must be killed, then `unmount` and `mount`."""
        directory = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(directory)

    def fill(self, leave_mib: int) -> None:
        """A ballast file takes all space but so much."""
        free_bytes = shutil.disk_usage(self.mount_point).free
        with (self.mount_point / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(MIB, free_bytes - leave_mib * MIB))

    def empty(self) -> None:
        (self.mount_point / "ballast").unlink(missing_ok=True)


@functools.cache
def missing() -> str:
    """Why images cannot be used on this machine; empty where they can, shown by losing power on a small one."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    with tempfile.TemporaryDirectory(prefix="penstock-probe-") as place:
        image: DiskImage | None = None
        try:
            image = DiskImage(Path(place) / "probe.img", Path(place) / "mount", PROBE_MIB)
            return _probe(image)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"loop images do not work here: {error}"
        finally:
            if image is not None:
                with contextlib.suppress(OSError):
                    image.unmount()


def _probe(image: DiskImage) -> str:
    """The level is real only if unsynced bytes vanish and synced ones stay."""
    synced, unsynced = image.mount_point / "synced", image.mount_point / "unsynced"
    with synced.open("wb") as file:
        file.write(b"stays")
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(image.mount_point, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    unsynced.write_bytes(b"goes")
    image.lose_power()
    image.unmount()
    image.mount()
    if not synced.exists() or synced.read_bytes() != b"stays":
        return "filesystem shutdown lost synced bytes"
    if unsynced.exists() and unsynced.read_bytes() == b"goes":
        return "filesystem shutdown kept unsynced bytes"
    return ""


def run(*command: str) -> None:
    """Raises CalledProcessError."""
    subprocess.run(command, check=True, capture_output=True)
