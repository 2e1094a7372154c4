"""The HTTP API: a module for each noun, each with its rows of the table of routes."""

from pgqrs.web.resources import health
from pgqrs.web.routing import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (*health.ENDPOINTS,)
