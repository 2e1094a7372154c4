"""The HTTP API and the dashboard: `pgqrs serve`, or mounted into an application of yours.

app.mount("/pgqrs", pgqrs.web.app(store, authorize=who, hosts=["jobs.example.com"]))
"""

from pgqrs.distribution import install_command as _install_command
from pgqrs.errors import ConfigError

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ModuleNotFoundError as _error:
    raise ConfigError(f"pgqrs.web needs {_error.name}: {_install_command('web')}") from None

from pgqrs.web.application import app
from pgqrs.web.auth.access import Caller, Scope
from pgqrs.web.auth.tokens import Tokens
from pgqrs.web.server.rate_limit import RateLimit

__all__ = ["Caller", "RateLimit", "Scope", "Tokens", "app"]

del _jinja2, _starlette
