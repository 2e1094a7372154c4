"""The server does what its OpenAPI document says: a little of what `make conform` asks."""

import pytest

from pgqrs.web.application import endpoints
from web.conform import conform, prepare


@pytest.mark.backends("sqlite")
async def test_schemathesis_finds_nothing(tmp_path, backend):
    dsn = f"sqlite:///{tmp_path / 'fuzz.db'}"
    await prepare(dsn)

    said = conform(dsn, tmp_path, examples=1, seed=7, phases="fuzzing")

    assert said.returncode == 0, said.stdout
    # All but the stream and the document itself.
    routes = len(endpoints(dashboard=False)) - 2
    assert f"Tested: {routes}" in said.stdout
