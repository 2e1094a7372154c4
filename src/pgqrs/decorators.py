"""`from pgqrs.decorators import step, workflow`: the decorators under a module of their own."""

from pgqrs.api.steps import step
from pgqrs.api.workflow import workflow

__all__ = ["step", "workflow"]
