"""System: versions, sizes, settings without their secrets, how long things are kept, what the doctor finds."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.api.retention import retention
from pgqrs.config import Config
from pgqrs.text.dsn import masked
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.rendering import parameter, render
from pgqrs.web.routing import Endpoint, RequestContext

# The doctor looks at much; a page that nobody asked it of must not wait for it.
_DOCTOR_SECONDS = 30.0


async def show(asked: RequestContext) -> Response:
    from pgqrs import __version__  # noqa: PLC0415 - the package imports nothing of ours at its head

    store = asked.store
    found = admin(store)
    examined = parameter(asked, "doctor") == "yes"
    return await render(
        asked,
        "system.html",
        here="system",
        version=__version__,
        python=platform.python_version(),
        stats=await found.stats(),
        settings=settings_of(store.config),
        policies=await retention(store).policies(),
        findings=(await found.doctor()).findings if examined else None,
    )


def settings_of(config: Config) -> list[tuple[str, str]]:
    """Every setting as it is in force, DSNs without their secrets."""
    found = []
    for field in dataclasses.fields(config):
        value: Any = getattr(config, field.name)
        found.append((field.name, masked(value) if field.name.endswith("dsn") and value else str(value)))
    return found


ENDPOINTS = (
    Endpoint("GET", "/system", show, Scope.READ, "Versions, sizes, settings", page=True, seconds=_DOCTOR_SECONDS),
)
