"""What the doctor looks at on this machine: the file of SQLite or Turso, its folder and its disk."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pgqrs.db.upkeep import diagnostics
from pgqrs.reports import DoctorFinding, Level

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# The write-ahead log needs memory that all processes share: over a network it is not shared, and files break.
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "fuse.sshfs",
    "fuse.s3fs",
}
_GONE_AT_REBOOT = {"tmpfs", "ramfs"}
# The layer of a container, which goes with it.
_GONE_WITH_CONTAINER = {"overlay", "aufs"}
_LITTLE_BYTES = 1024**3
_TOO_LITTLE_BYTES = 100 * 1024**2
_LARGE_LOG_BYTES = 64 * 1024**2


async def look(store: Store) -> AsyncIterator[DoctorFinding]:
    config = store.config
    name = "SQLite" if config.backend == "sqlite" else "Turso"
    version = await diagnostics.library_version(await store.ready())
    if config.path == ":memory:":
        yield DoctorFinding("database", Level.OK, f"{name} {version} in memory")
        why = "all of it is gone when this process ends"
        yield DoctorFinding("durability", Level.WARN, "the database is in memory", why, "sqlite:///file.db")
        return
    for finding in _findings(config.path, f"{name} {version}"):
        yield finding


def _findings(path: str, library: str) -> Iterator[DoctorFinding]:
    file = Path(path).resolve()
    yield DoctorFinding("database", Level.OK, f"{library}, {file}")
    yield _durability(file)
    yield _permissions(file)
    yield _file_system(file)
    yield _disk(file)


def _durability(file: Path) -> DoctorFinding:
    log = file.with_name(f"{file.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LARGE_LOG_BYTES:
        return DoctorFinding(
            "durability",
            Level.WARN,
            f"the write-ahead log has {size / 2**20:,.0f} MB",
            "a connection with a long transaction keeps it from being emptied",
            f"end what reads it: lsof {log}",
        )
    # Checked on every connection, which is refused otherwise.
    return DoctorFinding("durability", Level.OK, "write-ahead log, synchronous=full, foreign_keys=on")


def _permissions(file: Path) -> DoctorFinding:
    beside = (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm"))
    open_to_others = [
        each for each in beside if each.exists() and each.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    if not open_to_others:
        return DoctorFinding("file_permissions", Level.OK, "only its owner can read the file")
    return DoctorFinding(
        "file_permissions",
        Level.WARN,
        f"others than its owner have access to {open_to_others[0].name}",
        "payloads may be secrets, and whoever can write the file can change any run",
        f"chmod 600 {' '.join(map(str, open_to_others))}",
    )


def _file_system(file: Path) -> DoctorFinding:
    kind = file_system_of(file)
    if kind in _NETWORK:
        why = "its locks and its shared memory do not reach other machines: the file will break"
        fix = "put it on a local disk, or use PostgreSQL: pgqrs promote"
        return DoctorFinding("file_system", Level.BAD, f"the file is on a network ({kind})", why, fix)
    if kind in _GONE_AT_REBOOT:
        why = "a reboot, or a power cut, takes all of it away"
        return DoctorFinding("file_system", Level.WARN, f"the file is in memory ({kind})", why, "put it on a disk")
    if kind in _GONE_WITH_CONTAINER:
        why = "it goes when the container is removed"
        fix = "put it on a volume"
        return DoctorFinding("file_system", Level.WARN, f"the file is in a container's own layer ({kind})", why, fix)
    return DoctorFinding("file_system", Level.OK, f"the file is on a local disk ({kind or 'of a kind unknown'})")


def file_system_of(file: Path) -> str | None:
    """The kind of the file system that the file is on; None where the machine does not tell."""
    found: tuple[int, str] | None = None
    for where, kind in _mounts():
        if file.is_relative_to(where) and (found is None or len(where.parts) >= found[0]):
            found = (len(where.parts), kind)
    return None if found is None else found[1]


def _mounts() -> Iterator[tuple[Path, str]]:
    """Where file systems are mounted, and of what kind they are: Linux says so, others do not."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        # 36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/sda1 rw
        mounted, found, kind = line.partition(" - ")
        if found and len(mounted.split()) > 4:
            where = mounted.split()[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            yield Path(where), kind.split()[0]


def _disk(file: Path) -> DoctorFinding:
    free = shutil.disk_usage(file.parent).free
    what = f"{free / 2**30:,.1f} GB are free on its disk"
    if free >= max(_LITTLE_BYTES, file.stat().st_size // 10):
        return DoctorFinding("disk_space", Level.OK, what)
    level = Level.BAD if free < _TOO_LITTLE_BYTES else Level.WARN
    why = "when there is none, nothing can be written any more"
    return DoctorFinding("disk_space", level, what, why, "pgqrs prune, or a larger disk")
