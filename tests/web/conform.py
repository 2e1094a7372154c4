"""`make conform`: does the server do what its OpenAPI document says? Asked by schemathesis, over a socket, with a token.

Every check that schemathesis has but two. That what the document allows is accepted: a document cannot say all that we
refuse (a queue that is not there, a delay beside a time). And that a wrong token gets a 401: after twenty of them it is
a 429; `test_tokens.py` asks every route without one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pgqrs
from pgqrs.web.auth import tokens
from pgqrs.web.auth.access import Scope
from web.fuzz import furnish

NOT_ASKED = "positive_data_acceptance,ignored_auth"
# Its stream has no end.
LEFT_OUT = "/stream"


def conform(dsn: str, folder: Path, *, examples: int, seed: int, phases: str) -> subprocess.CompletedProcess[str]:
    """What schemathesis says of a server on that database; 0 means that it found nothing."""
    token = tokens.create(folder / "tokens", "schemathesis", [Scope.ADMIN])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "pgqrs", "-d", dsn, "serve", "--port", str(port), "--rate", "0"]
    serving = subprocess.Popen(
        [*serve, "--tokens", str(folder / "tokens")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert serving.stdout is not None
        serving.stdout.readline()
        return subprocess.run(
            [
                *(
                    str(Path(sys.executable).with_name("schemathesis")),
                    "run",
                    f"http://127.0.0.1:{port}/openapi.json",
                ),
                *("--header", f"Authorization: Bearer {token}", "--exclude-path", LEFT_OUT),
                *("--checks", "all", "--exclude-checks", NOT_ASKED, "--phases", phases),
                *("--max-examples", str(examples), "--seed", str(seed), "--no-color", "--wait-for-schema", "30"),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        serving.terminate()
        serving.communicate()


async def prepare(dsn: str) -> None:
    async with pgqrs.connect(dsn, install=True) as store:
        await furnish(store)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgqrs-conform-") as name:
        folder = Path(name)
        dsn = os.environ.get("PGQRS_FUZZ_DSN") or f"sqlite:///{folder / 'fuzz.db'}"
        asyncio.run(prepare(dsn))
        said = conform(
            dsn,
            folder,
            examples=int(os.environ.get("EXAMPLES") or 50),
            seed=int(os.environ.get("SEED") or 1),
            phases="coverage,fuzzing,stateful",
        )
    print(said.stdout)
    sys.exit(said.returncode)


if __name__ == "__main__":
    main()
