"""`from pgqrs.decorators import step, workflow` (seed 002)."""

from pgqrs.api.steps import step
from pgqrs.api.workflow import workflow

__all__ = ["step", "workflow"]
