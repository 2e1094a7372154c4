"""`from pgqrs.decorators import step, workflow` (seed 002)."""

from pgqrs.api.workflow import step, workflow

__all__ = ["step", "workflow"]
