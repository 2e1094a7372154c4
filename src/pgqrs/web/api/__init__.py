"""The HTTP API: a module for each noun, each with its rows of the table of routes."""

from pgqrs.web.api import actions, health, queues, runs, schedules, store, workflows
from pgqrs.web.routing import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *runs.ENDPOINTS,
    *actions.ENDPOINTS,
    *workflows.ENDPOINTS,
    *queues.ENDPOINTS,
    *schedules.ENDPOINTS,
    *store.ENDPOINTS,
    *health.ENDPOINTS,
)
