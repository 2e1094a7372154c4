"""Which operation comes next: any verb of the model, on what is there, with leases that hold and with lost ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from pgqrs.types import ENDED, RunStatus, StepStatus
from proof.model.queues import Name
from proof.model.records import SIGNALS, STEPS, WAITS, End, Report, Run, StepDone
from proof.model.runs import LIVE, Model
from proof.model.schedules import WholeModel
from proof.model.world import CONSUMERS, QUEUES, SCHEDULES, WORKERS, WORKFLOWS

# Shorter and longer than what is waited for below.
LEASES = (5, 10, 30)
DELAYS = (0, 0, 0, 5, 20)
JUMPS = (0.1, 0.5, 1, 1, 2, 2, 5, 10, 30, 3600)
KEYS = ("k1", "k2", "k3")


class Operation(NamedTuple):
    """A verb of the model, and what it is given. Names that are not there (any more) make it no operation."""

    verb: str
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


class Chance:
    """Draws operations; the same seed on the same model draws the same."""

    def __init__(self, dice: random.Random, *, limits: bool) -> None:
        self.dice = dice
        self.limits = limits
        # Each walk has a favourite, so that what needs several of its verbs in a row comes to pass.
        favourites = dice.choice(_THEMES)
        self._weights = {verb: weight * (5 if verb in favourites else 1) for verb, weight in _WEIGHTS.items()}

    def next(self, model: WholeModel) -> Operation:
        while True:
            [verb] = self.dice.choices(list(self._weights), list(self._weights.values()))
            given = getattr(self, f"_{verb}")(model)
            if given is not None:
                return Operation(verb, given)

    def _some(self, pick: Callable[[], Any], most: int) -> list[Any]:
        return [pick() for _ in range(self.dice.randint(1, most))]

    def _value(self) -> Any:
        return self.dice.choice([0, 1, "text", [1, 2], {"a": 1}])

    def _leases(self, model: Model, *, runs: bool, most: int = 3) -> list[Name] | None:
        """Half of them hold; the others were lost, or settled. No message twice."""
        known = [name for name, each in model.leases.items() if (each.run is not None) == runs]
        holding = [name for name in known if model.held(model.leases[name].fence)]
        if not known:
            return None
        chosen: dict[Name, Name] = {}
        for _ in range(self.dice.choice([1, 1, 1, 2, most])):
            name = self.dice.choice(holding if holding and self.dice.random() < 0.7 else known[-20:])
            chosen.setdefault(model.leases[name].message, name)
        return list(chosen.values())

    def _run(self, model: Model, wanted: Callable[[Run], bool] = lambda run: run.status in LIVE) -> Name | None:
        """Any of the newest, but mostly one with which the verb does something."""
        known = list(model.runs)[-15:]
        fitting = [name for name in known if wanted(model.runs[name])]
        if not known:
            return None
        return self.dice.choice(fitting if fitting and self.dice.random() < 0.75 else known)

    # -- queues ------------------------------------------------------------------------------------------

    def _advance(self, _: Model) -> Any:
        return {"seconds": self.dice.choice(JUMPS)}

    def _enqueue(self, _: Model) -> Any:
        return {
            "queue": self.dice.choice(QUEUES),
            "payloads": self._some(self._value, 3),
            "delay": self.dice.choice(DELAYS),
            "priority": self.dice.choice([0, 0, 0, 1, -1]),
            "max_attempts": self.dice.choice([1, 2, 3]),
        }

    def _dequeue(self, _: Model) -> Any:
        worker = self.dice.choice(CONSUMERS)
        return {
            "worker": worker,
            "queue": worker[0],
            "batch": self.dice.randint(1, 3),
            "seconds": self.dice.choice(LEASES),
        }

    def _turn(self, model: Model) -> Any:
        given = self._dequeue(model)
        leases = self._leases(model, runs=False) or []
        return {**given, "leases": leases, "keep": self.dice.random() < 0.7}

    def _of_leases(self, model: Model, **more: Any) -> Any:
        leases = self._leases(model, runs=False)
        return None if leases is None else {"leases": leases, **more}

    def _archive(self, model: Model) -> Any:
        return self._of_leases(model)

    def _delete_messages(self, model: Model) -> Any:
        return self._of_leases(model)

    def _extend(self, model: Model) -> Any:
        leases = self._leases(model, runs=self.dice.random() < 0.5)
        return None if leases is None else {"leases": leases, "seconds": self.dice.choice(LEASES)}

    def _release(self, model: Model) -> Any:
        count_attempt = self.dice.random() < 0.3
        return self._of_leases(model, delay=self.dice.choice(DELAYS), count_attempt=count_attempt)

    def _hand_back(self, model: Model) -> Any:
        return self._of_leases(model, delay=self.dice.choice(DELAYS), dead=self.dice.random() < 0.3)

    def _release_worker(self, _: Model) -> Any:
        return {"worker": self.dice.choice(CONSUMERS + WORKERS)}

    def _dead_letters(self, _: Model) -> Any:
        return {"queue": self.dice.choice(QUEUES)}

    def _replay(self, model: Model) -> Any:
        queue = self.dice.choice(QUEUES)
        names = [name for name, m in model.messages.items() if m.queue == queue]
        if self.dice.random() < 0.5 or not names:
            return {"queue": queue, "some": None}
        return {"queue": queue, "some": self.dice.sample(names, min(len(names), 3))}

    def _pause_queue(self, _: Model) -> Any:
        return {"queue": self.dice.choice([*QUEUES, *WORKFLOWS])}

    def _resume_queue(self, model: Model) -> Any:
        paused = [name for name, at in model.queues.items() if at is not None]
        return {"queue": self.dice.choice(paused or QUEUES)}

    def _purge(self, _: Model) -> Any:
        return {"queue": self.dice.choice(QUEUES), "archived": self.dice.random() < 0.5}

    def _metrics(self, model: Model) -> Any:
        return {"queue": self.dice.choice(list(model.queues))}

    def _next_due(self, model: Model) -> Any:
        return {"queues": self.dice.sample(list(model.queues), self.dice.randint(1, 3))}

    # -- runs --------------------------------------------------------------------------------------------

    def _trigger(self, _: Model) -> Any:
        keyed = self.dice.random() < 0.4
        inputs = self._some(lambda: self.dice.choice([1, 2]) if keyed else self._value(), 2)
        return {
            "workflow": self.dice.choice(["mail", "mail", "zip"]),
            "inputs": inputs,
            "keys": [self.dice.choice(KEYS) for _ in inputs] if keyed else [],
            "delay": self.dice.choice(DELAYS),
            "priority": self.dice.choice([0, 0, 0, 1]),
            "max_attempts": self.dice.choice([1, 2, 3]),
        }

    def _claim(self, model: Model) -> Any:
        names = self.dice.sample(list(WORKFLOWS), self.dice.randint(1, 3))
        # Not too often in vain.
        if not any(map(model.ready, names)) and self.dice.random() < 0.8:
            names = self.dice.sample(list(WORKFLOWS), 3)
            if not any(map(model.ready, names)):
                return None
        most = self.dice.choice([1, 2, 100]) if self.limits else 100
        return {
            "worker": self.dice.choice(WORKERS),
            "sources": {name: (self.dice.choice(LEASES), most) for name in names},
            "batch": self.dice.randint(1, 4),
        }

    def _claim_run(self, model: Model) -> Any:
        run = self._run(model)
        seconds = self.dice.choice(LEASES)
        return None if run is None else {"worker": self.dice.choice(WORKERS), "run": run, "seconds": seconds}

    def _commit(self, model: Model) -> Any:
        leases = self._leases(model, runs=True, most=4)
        if leases is None:
            return None
        reports = []
        for lease in leases:
            steps = self.dice.sample(STEPS, self.dice.choice([0, 1, 1, 2]))
            end = self._end(model, lease) if self.dice.random() < 0.6 or not steps else None
            done = tuple(map(self._step, steps))
            if end and len(done) > 1 and self.dice.random() < 0.5:
                # As two branches of one run report that were gathered into one batch.
                reports.append(Report(lease, done[:1]))
                done = done[1:]
            reports.append(Report(lease, done, end))
        return {"reports": reports}

    def _step(self, step: str) -> StepDone:
        status = self.dice.choice([StepStatus.SUCCESS] * 3 + [StepStatus.ERROR, StepStatus.PAUSED])
        error = {"type": "Oops", "message": "no"} if status is StepStatus.ERROR else None
        output = self._value() if status is StepStatus.SUCCESS else None
        return StepDone(step, status, output, error, self.dice.randint(1, 3))

    def _end(self, model: Model, lease: Name) -> End:
        delay = self.dice.choice((0, 5, 20, 60))
        held = model.leases[lease]
        oops = {"type": "Oops"}
        # As older versions end a run, and with the steps that are at fault.
        blamed = self.dice.sample(STEPS, self.dice.randint(0, len(STEPS)))
        failed = self.dice.choice([oops, {**oops, "steps": blamed}, {**oops, "steps": blamed}])
        ends = [
            End(RunStatus.SUCCESS, output=self._value()),
            End(RunStatus.SUCCESS, output=self._value()),
            End(RunStatus.ERROR, error=failed, last_error="Oops"),
            End(RunStatus.PENDING, delay=delay),
            # A step's own backoff.
            End(RunStatus.RUNNING, delay=delay),
            End(RunStatus.PAUSED, delay=delay, waiting_for="sleep"),
            End(RunStatus.PAUSED, delay=60, waiting_for="go", signals=("go",)),
            End(RunStatus.PAUSED, delay=60, waiting_for="both", signals=SIGNALS),
            End(RunStatus.PAUSED, delay=60, waiting_for="children", children=True),
        ]
        # Often enough that a parent waits and its last child ends.
        if held.run and model.has_live_children(held.run):
            ends += [End(RunStatus.PAUSED, delay=86_400, waiting_for="children", children=True)] * 20
        elif held.run and model.runs[held.run].parent:
            ends += [End(RunStatus.SUCCESS, output=self._value())] * 10
        if held.attempts < held.max_attempts:
            again = End(RunStatus.RUNNING, error=oops, last_error="Oops", delay=delay, count_attempt=True)
            ends += [again, again]
        return self.dice.choice(ends)

    def _one(self, model: Model, **more: Any) -> Any:
        leases = self._leases(model, runs=True, most=1)
        return None if leases is None else {"lease": leases[0], **more}

    def _take_signal(self, model: Model) -> Any:
        given = self._one(model, name=self.dice.choice(SIGNALS))
        if given is None:
            return None
        # A lease of a run that was sent one, if there is any.
        unread = {signal.run for signal in model.signals if signal.consumed_at is None}
        fitting = [name for name, lease in model.leases.items() if lease.run in unread and model.held(lease.fence)]
        if fitting and self.dice.random() < 0.7:
            given["lease"] = self.dice.choice(fitting)
        # A handler that has the result of a step does not ask for it.
        steps = model.steps[model.leases[given["lease"]].run or Name(0, 0)]
        unanswered = [
            each for each in WAITS[given["name"]] if each not in steps or steps[each].status is not StepStatus.SUCCESS
        ]
        return {**given, "step": unanswered[0]} if unanswered else None

    def _spawn(self, model: Model) -> Any:
        given = self._one(model, step="spawn", workflow=self.dice.choice(["mail", "zip"]), inputs=[self._value()])
        run = model.leases[given["lease"]].run if given else None
        # A few children, now and then of children.
        return None if run is None or (model.has_live_children(run) and self.dice.random() < 0.8) else given

    def _transact(self, model: Model) -> Any:
        return self._one(model, step=self.dice.choice(STEPS), output=self._value())

    def _show_progress(self, model: Model) -> Any:
        return self._one(model, done=self.dice.randint(1, 9))

    def _end_lost(self, _: Model) -> Any:
        return {"workflows": self.dice.sample(list(WORKFLOWS), self.dice.randint(1, 3))}

    def _of_run(self, run: Name | None, **more: Any) -> Any:
        return None if run is None else {"run": run, **more}

    def _reason(self) -> str | None:
        return self.dice.choice([None, "because"])

    def _cancel(self, model: Model) -> Any:
        return self._of_run(self._run(model), reason=self._reason())

    def _pause(self, model: Model) -> Any:
        return self._of_run(self._run(model), reason="a person")

    def _resume(self, model: Model) -> Any:
        run = self._run(model, lambda run: run.status is RunStatus.PAUSED and run.deleted_at is None)
        waiting = [step for step, each in model.steps.get(run, {}).items() if each.status is StepStatus.PAUSED]
        step = self.dice.choice([None, None, None, *STEPS, *waiting, *waiting])
        return self._of_run(run, step=step, data=self._value())

    def _signal(self, model: Model) -> Any:
        run = self._run(model, lambda run: run.status is RunStatus.PAUSED and run.waiting_for != "a person")
        return self._of_run(run, name=self.dice.choice(SIGNALS), payload=self._value())

    def _restart(self, model: Model) -> Any:
        return self._of_run(self._run(model, lambda run: run.status in (RunStatus.ERROR, RunStatus.CANCELLED)))

    def _reset(self, model: Model) -> Any:
        run = self._run(model, lambda run: run.status in ENDED)
        return self._of_run(run, from_step=self.dice.choice([None, *model.steps.get(run, {}), STEPS[0]]))

    def _delete(self, model: Model) -> Any:
        return self._of_run(self._run(model), reason=self._reason())

    def _restore(self, model: Model) -> Any:
        return self._of_run(self._run(model, lambda run: run.deleted_at is not None))

    # -- schedules ---------------------------------------------------------------------------------------

    def _schedule(self, _: Model) -> Any:
        return {
            "name": self.dice.choice(SCHEDULES),
            "workflow": self.dice.choice(["mail", "zip"]),
            "overlap": self.dice.choice(["allow", "skip", "queue", "queue", "cancel"]),
            "catch_up": self.dice.choice(["none", "last", "all"]),
        }

    def _fire(self, model: WholeModel) -> Any:
        return {"name": self._timetable(list(model.schedules))}

    def _resume_schedule(self, model: WholeModel) -> Any:
        paused = [name for name, each in model.schedules.items() if each.paused_at is not None]
        return {"name": self._timetable(paused), "catch_up": self.dice.random() < 0.5}

    def _timetable(self, fitting: list[str]) -> str:
        return self.dice.choice(fitting if fitting and self.dice.random() < 0.9 else SCHEDULES)

    _pause_schedule = _delete_schedule = _trigger_schedule = _fire


# How often, one beside the other.
_WEIGHTS = {
    "advance": 16,
    "enqueue": 8,
    "dequeue": 10,
    "turn": 4,
    "archive": 5,
    "delete_messages": 2,
    "extend": 4,
    "release": 4,
    "hand_back": 2,
    "release_worker": 1.5,
    "dead_letters": 1,
    "replay": 2,
    "pause_queue": 0.5,
    "resume_queue": 4,
    "purge": 0.3,
    "metrics": 1,
    "next_due": 1,
    "trigger": 6,
    "claim": 18,
    "claim_run": 1.5,
    "commit": 24,
    "take_signal": 4,
    "spawn": 4,
    "transact": 1.5,
    "show_progress": 0.7,
    "end_lost": 3,
    "cancel": 2,
    "pause": 2,
    "resume": 4,
    "signal": 5,
    "restart": 3,
    "reset": 2,
    "delete": 1.5,
    "restore": 2,
    "schedule": 1.5,
    "fire": 4,
    "pause_schedule": 0.5,
    "resume_schedule": 0.8,
    "delete_schedule": 0.2,
    "trigger_schedule": 0.3,
}

_THEMES = (
    (),
    ("enqueue", "dequeue", "turn", "archive", "release", "replay", "dead_letters", "pause_queue", "resume_queue"),
    ("spawn", "signal", "take_signal", "commit", "claim", "cancel"),
    ("schedule", "fire", "pause_schedule", "resume_schedule", "cancel", "advance"),
)


def names_in(value: Any) -> list[Name]:
    """Every name that an operation refers to."""
    if isinstance(value, Name):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [name for each in value for name in names_in(each)] if isinstance(value, list | tuple) else []
