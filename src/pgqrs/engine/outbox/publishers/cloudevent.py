"""Events as CloudEvents 1.0: their attributes, and the two ways in which they go over HTTP."""

from __future__ import annotations

import json
from typing import Any, Literal

from pgqrs.distribution import install_command
from pgqrs.errors import ConfigError
from pgqrs.types import OutboxEvent

Mode = Literal["structured", "binary"]


def check_installed() -> None:
    try:
        import cloudevents.core.bindings.http  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise ConfigError(f"CloudEvents over HTTP need the `cloudevents` package: {install_command('web')}") from None


def attributes_of(event: OutboxEvent) -> dict[str, Any]:
    """Those of CloudEvents; receivers deduplicate by `source` and `id`."""
    return {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.created_at,
        "datacontenttype": "application/json",
    }


def to_http(event: OutboxEvent, mode: Mode) -> tuple[dict[str, str], bytes]:
    """The headers and the body of the request."""
    from cloudevents.core.bindings.http import to_binary, to_structured  # noqa: PLC0415 - an extra
    from cloudevents.core.formats.json import JSONFormat  # noqa: PLC0415
    from cloudevents.core.v1.event import CloudEvent  # noqa: PLC0415

    # In binary mode the body is the payload as it was stored, byte for byte.
    binary = mode == "binary"
    data: Any = event.payload_text.encode() if binary else json.loads(event.payload_text)
    made = CloudEvent(attributes_of(event), data)
    message = to_binary(made, JSONFormat()) if binary else to_structured(made, JSONFormat())
    return dict(message.headers), message.body
