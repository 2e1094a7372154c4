"""The causes that `why` gives: what each means, why it happens, and what to do."""

from __future__ import annotations

CAUSES: dict[str, tuple[str, str, str]] = {
    "deleted": (
        "The run was deleted: no worker can take it.",
        "`pgqrs run delete`, or a bulk deletion.",
        "`pgqrs run restore ID`, until retention removes it for good.",
    ),
    "succeeded": (
        "The run has ended in SUCCESS.",
        "Its handler returned.",
        "Nothing. `pgqrs run result ID` prints what it returned.",
    ),
    "cancelled": (
        "The run was cancelled.",
        "A person or a program cancelled the run or its parent.",
        "`pgqrs run restart ID` continues where it stopped; `retry-children` does so with its cancelled children.",
    ),
    "failed": (
        "The run has ended in ERROR.",
        "Its handler failed in each of its attempts, or for good.",
        "Fix the cause, then `pgqrs run restart ID`, or `pgqrs run retry-children ID` if it failed because of those.",
    ),
    "dead_letter": (
        "The run has ended in ERROR because its worker was lost in every attempt.",
        "Something in it kills the process: memory, a crash in a library, a machine that goes away.",
        "Look at the workers' logs at its attempts; then `pgqrs run restart ID`.",
    ),
    "queue_paused": (
        "Nothing is taken from its queue.",
        "`pgqrs queue pause` or `pgqrs workflow pause`.",
        "`pgqrs queue resume NAME`.",
    ),
    "leased": (
        "A worker is at work on it, and renews its lease.",
        "A step takes its time.",
        "Nothing. `pgqrs run steps ID` shows how far it is.",
    ),
    "holder_silent": (
        "A worker holds it, and has not been heard of for three leases.",
        "The process is gone, stands still, or cannot reach the database.",
        "Nothing: another worker takes over when the lease ends. Sooner: `pgqrs worker release WORKER`.",
    ),
    "no_worker": (
        "No worker that is registered serves its workflow.",
        "None has been started with its code, or those that were have stopped.",
        "`pgqrs worker run APP`, with an application that has the workflow.",
    ),
    "workers_stale": (
        "The workers of its workflow disappeared without shutting down: they have been silent for three leases.",
        "They were killed, or cannot reach the database.",
        "Start them again: `pgqrs worker run APP`.",
    ),
    "no_handler": (
        "Workers take its workflow by its prefix, but have no code for it.",
        "The code that has it is not deployed there yet, or was renamed.",
        "Deploy the code. After no_handler_grace_seconds the run ends in ERROR; `pgqrs run restart ID` then.",
    ),
    "parked": (
        "Its code asks for different steps than the recorded ones.",
        "The handler was changed while the run was under way, or is not deterministic.",
        (
            "Deploy the code that it began with, then `pgqrs run resume ID`. To restart it from scratch: "
            "`pgqrs run reset ID`. More: `pgqrs explain non-determinism`."
        ),
    ),
    "paused": (
        "Somebody paused it.",
        "`pgqrs run pause`, with the reason that is shown.",
        "`pgqrs run resume ID`.",
    ),
    "waiting_for_children": (
        "It waits for runs that it spawned.",
        "They have not ended yet.",
        "`pgqrs run why CHILD` asks the same of the first of them.",
    ),
    "waiting_for_signal": (
        "It waits for a signal, perhaps up to a deadline.",
        "ctx.wait_for(NAME) in its handler.",
        "`pgqrs run signal ID NAME`, or `pgqrs run approve ID`.",
    ),
    "waiting_for_person": (
        "It waits for a person.",
        "ctx.pause(...) or a PauseError in its handler.",
        "`pgqrs run resume ID`, with --step and --data where it asks for an answer.",
    ),
    "asleep": (
        "It sleeps until the time that is shown.",
        "ctx.sleep(...) in its handler.",
        "Nothing: it wakes by itself. Sooner: `pgqrs run resume ID`.",
    ),
    "backing_off": (
        "It failed, and is tried again at the time that is shown.",
        "An error that may go away by itself.",
        "Wait, or fix the cause. `pgqrs run resume ID` starts the next attempt now.",
    ),
    "scheduled": (
        "It is to begin later.",
        "It was triggered with --at or --in, or a worker had no code for it a moment ago.",
        "Nothing.",
    ),
    "lease_expired": (
        "Its worker's lease ran out.",
        "The worker was lost, or stood still.",
        "Nothing: the next worker that looks takes it; after its last attempt it ends in ERROR.",
    ),
    "ready": (
        "It is due, and waits for a free worker.",
        "The workers have as many runs as they may, or have not looked yet.",
        "Nothing; if it takes long, more workers or a higher --concurrency.",
    ),
}
