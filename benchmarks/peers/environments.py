"""Who the peers are, at which version, and the virtual environment of each: made on demand, once.

`python -m benchmarks.peers.environments [PEER ...]` makes them and says where they are, or why one is missing.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".bench"
SCRIPTS = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Peer:
    """A product, and what its environment must hold."""

    name: str
    requirements: tuple[str, ...]
    databases: tuple[str, ...] = ("postgres",)
    oldest_python: tuple[int, int] = (3, 11)

    @property
    def script(self) -> Path:
        return SCRIPTS / f"on_{self.name}.py"


# With which each script looks into the database from outside, whatever its peer uses.
LOOKING = "psycopg[binary]==3.3.8"
PEERS = {
    peer.name: peer
    for peer in (
        Peer("dbos", ("dbos==3.3.0", LOOKING), databases=("postgres", "sqlite")),
        # Another project than ours that has the same name: in an environment without ours, or one hides the other.
        Peer("pgqrs", ("pgqrs==0.15.3", LOOKING)),
        Peer("absurd", ("absurd-sdk==0.5.1", "absurdctl==0.5.1", LOOKING)),
        Peer("procrastinate", ("procrastinate==3.10.0", LOOKING)),
        Peer("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0", LOOKING)),
        Peer("oban", ("oban==0.7.0", LOOKING), oldest_python=(3, 12)),
        Peer("huey", ("huey==3.5.4",), databases=("sqlite",)),
    )
}


class PeerUnavailable(Exception):
    """A peer that cannot be measured here, and why."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer} is left out: {reason}")
        self.peer, self.reason = peer, reason


def make(peer: Peer, folder: Path = FOLDER) -> Path:
    """The Python of the peer's environment, which is made unless it is there; raises PeerUnavailable."""
    home = folder / peer.name
    python = home / "bin" / "python"
    stamp = home / "requirements.txt"
    wanted = "\n".join(peer.requirements) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    base = find_python(peer.oldest_python)
    if base is None:
        version = ".".join(map(str, peer.oldest_python))
        raise PeerUnavailable(peer.name, f"it needs Python {version} or newer, and there is none on this machine")
    shutil.rmtree(home, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    run(peer, [base, "-m", "venv", str(home)])
    run(peer, [str(python), "-m", "pip", "install", "--quiet", *peer.requirements])
    # Last, so that an environment half made is made anew.
    stamp.write_text(wanted)
    return python


def make_all(folder: Path = FOLDER, names: Sequence[str] = ()) -> tuple[dict[str, Path], dict[str, str]]:
    """The Python of each peer, and the reason of each that is missing."""
    pythons, missing = {}, {}
    for name in names or PEERS:
        try:
            pythons[name] = make(PEERS[name], folder)
        except PeerUnavailable as unavailable:
            missing[name] = unavailable.reason
    return pythons, missing


def command(peer: Peer, python: Path, *, scenario: str, dsn: str, count: int, seconds: float = 60.0) -> list[str]:
    """What to run: it prints one line of JSON. `clean_environment` is what to run it with."""
    options = {"--scenario": scenario, "--dsn": dsn, "--count": str(count), "--seconds": str(seconds)}
    return [str(python), str(peer.script), *(part for option in options.items() for part in option)]


def clean_environment() -> dict[str, str]:
    """Ours without what could bring our own modules, or somebody's settings, into a peer's environment."""
    ours = ("PYTHON", "VIRTUAL_ENV", "PGQRS_", "PGQUEUER_", "OBAN_", "DBOS_", "ABSURD_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def find_python(oldest: tuple[int, int]) -> str | None:
    """A Python of that version or newer: this one if it will do, so that most peers run on the same as we."""
    return next((python for python in pythons() if is_at_least(python, oldest)), None)


def pythons() -> Iterator[str]:
    yield getattr(sys, "_base_executable", sys.executable)
    names = ("python3.12", "python3.13", "python3.14")
    yield from (found for name in names if (found := shutil.which(name)))
    # Its shims are on PATH for every version, but work only for the one that is chosen.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(found) for name in names for found in sorted(pyenv.glob(f"*/bin/{name}")))


def is_at_least(python: str, oldest: tuple[int, int]) -> bool:
    question = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {oldest})"
    return subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0


def run(peer: Peer, arguments: list[str]) -> None:
    done = subprocess.run(arguments, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise PeerUnavailable(peer.name, f"{' '.join(arguments[1:4])} failed: {last}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the environments of the peers.")
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of: {', '.join(PEERS)}; all when none is named")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    if unknown := set(given.peers) - set(PEERS):
        parser.error(f"no peer named {', '.join(sorted(unknown))}; there are: {', '.join(PEERS)}")
    found, missing = make_all(given.folder, given.peers)
    for name, python in found.items():
        print(f"{name:<14} {python}")
    for name, reason in missing.items():
        print(f"{name:<14} left out: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
