"""What an error of PostgreSQL, or of its client, means for a call: try again, tell a person, or pass it on."""

from __future__ import annotations

import re
from typing import Any

import asyncpg

from pgqrs.config import Config
from pgqrs.db.database import IntegrityViolation
from pgqrs.errors import ConnectionFailed, PgqrsError, SchemaNotInstalled
from pgqrs.text.dsn import without_secrets
from pgqrs.text.shell import quoted

# The server said that the transaction is undone: running it again is always safe.
UNDONE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# So do these: a timeout of the server's, or a person, ended the statement or the transaction.
STOPPED = (
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
)
# The server went away, is coming up, has no room, or has become a standby; the statement was refused.
REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.ReadOnlySQLTransactionError,
    # A connection that was ended while it lay idle: asyncpg notices before it sends anything.
    asyncpg.InternalClientError,
)
# The server's answer is no, for a reason outside this program.
ACTED_ON = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.OperatorInterventionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
# The connection broke: what was sent last may have been carried out.
BROKEN = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError, TimeoutError)

# After these a connection does not go back into the pool: the next try shall reach a server that is there, and may
# write. Nor after a timeout (the server may still be at it), nor after an argument that the client refused: the
# statement is parsed then, its locks are taken, and no Sync has been sent.
UNFIT = (
    *(*REFUSED, *BROKEN, asyncpg.DataError),
    *(asyncpg.IdleInTransactionSessionTimeoutError, asyncpg.TransactionTimeoutError),
)


class Failed(Exception):
    """One try came to nothing, and another may do better."""

    def __init__(self, error: Exception, *, reply_lost: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.reply_lost = reply_lost


def explained(error: Exception, config: Config, *, in_doubt: bool) -> Exception:
    """What it means for the call: worth another try, something for a person, or an error of ours as it is."""
    if isinstance(error, (*UNDONE, *STOPPED, *REFUSED)):
        return Failed(error, reply_lost=False)
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return IntegrityViolation(str(error))
    if isinstance(error, BROKEN):
        mistaken = isinstance(error, asyncpg.InterfaceError) and not _is_closed(error)
        return error if mistaken else Failed(error, reply_lost=in_doubt)
    return _refusal(error, config) if isinstance(error, asyncpg.PostgresError) else error


def is_trouble(error: Exception, connection: Any) -> bool:
    """Whether the error of a user's statement is the engine's: the connection broke, or a retry is all it takes.

    The class alone does not tell: a foreign table raises what a broken connection raises, on one that is whole.
    """
    return connection.is_closed() or isinstance(error, (*UNDONE, *REFUSED, OSError, TimeoutError))


def given_up(config: Config, error: Exception, *, ambiguous: bool) -> ConnectionFailed:
    """After the last try of a call."""
    if not ambiguous and isinstance(error, (*UNDONE, *STOPPED)):
        return ConnectionFailed(
            f"the call was cancelled by the server {config.safe_dsn} each time for {config.retry_seconds:g} s: "
            f"{said(error, config)}; nothing of this call was written"
        )
    return unreachable(config, error, ambiguous=ambiguous)


def unreachable(config: Config, error: BaseException, *, ambiguous: bool = False) -> ConnectionFailed:
    text = shown(error, config)
    if isinstance(error, asyncpg.ClientConfigurationError | ValueError):
        text = type(error).__name__ + ": the DSN cannot be understood"
    if isinstance(error, ConnectionRefusedError):
        text += "; is PostgreSQL running there?"
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        text += f"; {_create(error, config)}"
    return ConnectionFailed(f"cannot use {config.safe_dsn}: {text}", ambiguous=ambiguous)


def said(error: BaseException, config: Config) -> str:
    """The words of the server or the client library, which may quote the DSN, without its secrets."""
    return without_secrets(str(error), config.dsn)


def shown(error: BaseException, config: Config) -> str:
    text = said(error, config)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _create(error: asyncpg.PostgresError, config: Config) -> str:
    # The server quotes the name; in another language than English, with other quotes.
    found = re.search(r'"([^"]+)"', said(error, config))
    return (
        f"create it on that server with `createdb {quoted(found.group(1)) if found else 'NAME'}`, or correct the DSN"
    )


def _is_closed(error: asyncpg.InterfaceError) -> bool:
    """asyncpg tells a closed connection and a wrong argument by the same class."""
    text = str(error)
    return "closed" in text or "closing" in text or "connection" in text


def _refusal(error: asyncpg.PostgresError, config: Config) -> PgqrsError | asyncpg.PostgresError:
    """Errors of the server that a person can act on; anything else is ours and goes up as it is."""
    if isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError | asyncpg.InvalidSchemaNameError):
        return SchemaNotInstalled(f"{error}", hint=f"look at schema {config.schema!r} with `pgqrs schema verify`")
    if isinstance(error, ACTED_ON):
        text = f"{config.safe_dsn} refused: {said(error, config)}; nothing of this call was written"
        is_missing = isinstance(error, asyncpg.InvalidCatalogNameError)
        return ConnectionFailed(f"{text}; {_create(error, config)}" if is_missing else text)
    return error
