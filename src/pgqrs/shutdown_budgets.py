"""How long an end may take: every budget of a stop, each with its reason.

Those who stop processes are not patient: docker and most supervisors kill after ten seconds. Nothing is lost when a
budget is used up: what was not handed back comes back when its lease ends.
"""

from __future__ import annotations

# A worker waits so long for what it asked before it was told to stop, and once more for handing back and signing off.
# Both together stay below the ten seconds of a supervisor.
WORKER_FAREWELL_SECONDS = 3.0
# One call of an end that must not keep the process; its error is not worth more than a line of the log.
LAST_CALL_SECONDS = 5.0
