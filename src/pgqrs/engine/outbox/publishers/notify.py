"""PostgreSQL NOTIFY as a receiver: whoever LISTENs on the channel gets the event as JSON."""

from __future__ import annotations

import json
import re

from pgqrs.db.driver import Driver
from pgqrs.db.tables import outbox
from pgqrs.engine.outbox.publishers.cloudevent import attributes_of
from pgqrs.errors import ConfigError
from pgqrs.types import OutboxEvent

# PostgreSQL takes less than 8,000 bytes.
_MOST_BYTES = 7_900
_CHANNEL = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


class NotifyPublisher:
    """Sends each event, in the JSON format of CloudEvents, to a channel of the same database.

    An event of more than 7,900 bytes goes without its data, with its id as `dataref`. Nobody listening means that
    nobody gets it: NOTIFY keeps nothing.
    """

    def __init__(self, channel: str) -> None:
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel):
            raise ConfigError(f"a channel has 1 to 63 of the letters a-z, digits and '_', not {channel!r}")
        self.channel = channel
        self._db: Driver | None = None

    def attach(self, db: Driver) -> None:
        """The dispatcher's database, before the first event. Raises ConfigError where there is no NOTIFY."""
        if not db.dialect.is_postgres:
            raise ConfigError(
                f"NotifyPublisher({self.channel!r}) needs PostgreSQL", hint="use an HttpPublisher or a function here"
            )
        self._db = db

    async def publish(self, event: OutboxEvent) -> None:
        if self._db is None:
            raise ConfigError("a NotifyPublisher works in a dispatcher: pgqrs.dispatcher(store).to(publisher)")
        await outbox.notify(self._db, channel=self.channel, payload=message_of(event))

    def __repr__(self) -> str:
        return f"NotifyPublisher({self.channel!r})"


def message_of(event: OutboxEvent) -> str:
    """The event as JSON that fits into a notification."""
    attributes = attributes_of(event) | {"specversion": "1.0", "time": event.created_at.isoformat()}
    text = json.dumps(attributes | {"data": json.loads(event.payload_text)}, ensure_ascii=False)
    if len(text.encode()) <= _MOST_BYTES:
        return text
    return json.dumps(attributes | {"dataref": event.id}, ensure_ascii=False)
