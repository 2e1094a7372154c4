"""The model of runs, on top of that of queues: what workers may do with a run, and what people may."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgqrs.types import ENDED, RunStatus, StepStatus
from proof.model.queues import CENTURY, Lease, Message, Name, QueueModel, RefusedError
from proof.model.records import PLACES, End, Report, Run, Signal, Step, StepDone

LIVE = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)


@dataclass(slots=True)
class Model(QueueModel):
    # workflow -> the one that gets a run when one of its own fails; each has a queue of its name
    workflows: dict[str, str | None] = field(default_factory=dict)
    runs: dict[Name, Run] = field(default_factory=dict)
    steps: dict[Name, dict[str, Step]] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    events: list[tuple[Name, str]] = field(default_factory=list)

    # -- how runs come to be -----------------------------------------------------------------------------

    def trigger(
        self,
        *,
        workflow: str,
        inputs: Sequence[Any],
        keys: Sequence[str],
        delay: float,
        priority: int,
        max_attempts: int,
    ) -> list[Name]:
        """A key that a live run has gives that run, if it is the same; else all of it is refused."""
        given = dict(zip(keys, inputs, strict=True)) if keys else {}
        owners = {key: self._owner(key) for key in given}
        for key, text in zip(keys, inputs, strict=bool(keys)):
            owner = owners[key]
            if given[key] != text or (
                owner and (self.runs[owner].workflow, self.runs[owner].input) != (workflow, text)
            ):
                raise RefusedError("IdempotencyConflict")
        made = []
        for place, text in enumerate(inputs):
            key = keys[place] if keys else None
            name = owners.get(key) if key else None
            if name is None:
                run = Run(workflow, text, self.now, self.now, max_attempts, priority, key)
                name = self._new_run(run, delay=delay)
                if key:
                    owners[key] = name
            made.append(name)
        return made

    def _owner(self, key: str) -> Name | None:
        return next((n for n, run in self.runs.items() if run.key == key and run.deleted_at is None), None)

    def _new_run(self, run: Run, *, delay: float = 0) -> Name:
        name = self.new_name()
        self.runs[name] = run
        self.steps[name] = {}
        self._new_message(name, delay=delay)
        self.events.append((name, "created"))
        return name

    def _new_message(self, run: Name, *, delay: float = 0) -> Message:
        r = self.runs[run]
        message = Message(r.workflow, None, r.priority, self.after(delay), self.now, r.max_attempts, run)
        self.messages[self.new_name()] = message
        return message

    def message_of(self, run: Name) -> Message | None:
        return next((m for m in self.messages.values() if m.run == run), None)

    def name_of_message(self, run: Name) -> Name:
        return next(name for name, m in self.messages.items() if m.run == run)

    # -- what the worker that holds a run does: fenced ---------------------------------------------------

    def claim(
        self, *, worker: str, sources: dict[str, tuple[float, int]], batch: int, seen: Sequence[Name]
    ) -> list[Lease]:
        lost = [m.run for name in seen if (m := self.messages[name]).holder and m.run]
        leases = self.take(sources, worker=worker, batch=batch, seen=seen)
        self.events += [(run, "lease_lost") for run in lost]
        for lease in leases:
            self._start(lease)
        return leases

    def claim_run(self, *, worker: str, run: Name, seconds: float) -> Lease:
        """This very run, whoever held it."""
        r = self._not_deleted(run)
        if r.status in (RunStatus.SUCCESS, RunStatus.CANCELLED):
            raise RefusedError("AlreadyCompleted" if r.status is RunStatus.SUCCESS else "InvalidTransition")
        if r.status is RunStatus.ERROR:
            self._reopen(run)
            self._clear_end(r)
            self.events.append((run, "restarted"))
        message = self.message_of(run) or self._new_message(run)
        message.visible_after = self.after(seconds)
        message.attempts = 1
        message.token = self.next_token(message)
        message.holder = worker
        lease = self.leased(self.name_of_message(run))
        self._start(lease)
        return lease

    def _start(self, lease: Lease) -> None:
        assert lease.run is not None
        run = self.runs[lease.run]
        run.status = RunStatus.RUNNING
        run.attempt = lease.attempts
        run.started_at = run.started_at or self.now
        run.worker = lease.worker
        run.paused_at = run.waiting_for = None
        run.updated_at = self.now

    def recorded(self, run: Name) -> dict[str, tuple[Any, ...]]:
        """What whoever claims the run is told of its steps."""
        return {step: (s.status, s.output, s.error, s.attempts) for step, s in self.steps[run].items()}

    def commit(self, *, reports: Sequence[Report]) -> set[Name]:
        """The leases that still held; what others report changes nothing."""
        mine = [(self.leases[r.lease].run, r) for r in reports if self.held(self.leases[r.lease].fence)]
        for run, report in mine:
            assert run is not None
            self.events += [(run, "step_failed") for done in report.steps if done.error is not None]
            for done in report.steps:
                self._record(run, done)
            if report.end is not None:
                self._end(run, report.end)
        self._tell_others([(run, report.end) for run, report in mine if run and report.end])
        return {report.lease for _, report in mine}

    def _record(self, run: Name, done: StepDone) -> None:
        """The first success wins for ever."""
        steps = self.steps[run]
        was = steps.get(done.step)
        if was and was.status is StepStatus.SUCCESS:
            return
        completed = self.now if done.status in (StepStatus.SUCCESS, StepStatus.ERROR) else None
        steps[done.step] = Step(
            PLACES[done.step],
            done.status,
            done.output,
            done.error,
            done.attempts,
            was.started_at if was else self.now,
            completed,
        )

    def _end(self, run: Name, end: End) -> None:
        r = self.runs[run]
        r.status = end.status
        r.updated_at = self.now
        if end.status in ENDED:
            r.output, r.error, r.last_error = end.output, end.error, end.last_error
            r.signature = end.last_error
            r.completed_at = self.now
            del self.messages[self.name_of_message(run)]
            self.events.append((run, "succeeded" if end.status is RunStatus.SUCCESS else "failed"))
            return
        r.error = end.error if end.error is not None else r.error
        r.last_error = end.last_error or r.last_error
        r.waiting_for = end.waiting_for
        r.paused_at = self.now if end.status is RunStatus.PAUSED else None
        message = self.message_of(run)
        assert message
        self._back(message, self.after(end.delay), give_back=0 if end.count_attempt else 1)
        told = {RunStatus.PAUSED: "paused", RunStatus.PENDING: "handed_back"}.get(end.status)
        if told or end.count_attempt:
            self.events.append((run, told or "retried"))

    def _tell_others(self, ends: Sequence[tuple[Name, End]]) -> None:
        self._wake_parents(self.runs[run].parent for run, end in ends if end.status in ENDED)
        for run, end in sorted(ends):
            if end.status is RunStatus.ERROR:
                self._dead_letter(run)
        for run, end in ends:
            heard = any(s.run == run and s.name in end.signals and s.consumed_at is None for s in self.signals)
            if heard or (end.children and not self.has_live_children(run)):
                self._wake(run)

    def _dead_letter(self, run: Name) -> None:
        r = self.runs[run]
        to = self.workflows[r.workflow]
        if to is None or r.dead_letter_of is not None:
            return
        about = {"run_id": run, "workflow": r.workflow, "last_error": r.last_error, "attempt": r.attempt}
        text = {**about, "input": r.input, "error": r.error}
        self._new_run(Run(to, text, self.now, self.now, r.max_attempts, dead_letter_of=run))

    def has_live_children(self, run: Name) -> bool:
        return any(c.parent == run and c.status in LIVE and c.deleted_at is None for c in self.runs.values())

    def _wake_parents(self, parents: Iterable[Name | None]) -> None:
        """Of those that wait, and not for a person; not while a child of theirs lives."""
        for parent in set(parents) - {None}:
            assert parent is not None
            if self.runs[parent].status is RunStatus.PAUSED and not self.has_live_children(parent):
                self._wake_waiting(parent)

    def _wake(self, run: Name) -> None:
        """At once, unless somebody is at work on it. What is visible already keeps its age, and its turn."""
        message = self.message_of(run)
        if message and message.holder is None:
            message.visible_after = min(message.visible_after, self.now)

    def _wake_waiting(self, run: Name) -> None:
        """As `_wake`, but what a person has put away stays there."""
        message = self.message_of(run)
        if message and message.visible_after < self.now + CENTURY / 2:
            self._wake(run)

    def take_signal(self, *, lease: Name, name: str, step: str) -> tuple[bool, Any]:
        run = self.leases[lease].run
        if not self.held(self.leases[lease].fence):
            return False, None
        assert run is not None
        for signal in self.signals:
            if signal.run == run and signal.name == name and signal.consumed_at is None:
                signal.consumed_at = self.now
                self._record(run, StepDone(step, StepStatus.SUCCESS, signal.payload))
                return True, signal.payload
        return True, None

    def spawn(self, *, lease: Name, step: str, workflow: str, inputs: Sequence[Any]) -> list[Name] | None:
        run = self.leases[lease].run
        if not self.held(self.leases[lease].fence):
            return None
        assert run is not None
        children = [self._new_run(Run(workflow, text, self.now, self.now, 3, parent=run)) for text in inputs]
        self._record(run, StepDone(step, StepStatus.SUCCESS, children))
        return children

    def transact(self, *, lease: Name, step: str, output: Any) -> Any:
        run = self.leases[lease].run
        if not self.held(self.leases[lease].fence):
            return None
        assert run is not None
        self._record(run, StepDone(step, StepStatus.SUCCESS, output))
        return output

    def show_progress(self, *, lease: Name, done: int) -> None:
        run = self.leases[lease].run
        if run and self.held(self.leases[lease].fence):
            self.runs[run].progress = done

    def end_lost(self, *, workflows: Sequence[str]) -> set[Name]:
        """Runs whose workers were lost as often as they may be."""
        lost = {run for each in workflows for name in self._dead(each) if (run := self.messages[name].run)}
        end = End(RunStatus.ERROR, error={"type": "lost"}, last_error="worker_lost")
        for run in lost:
            self._end(run, end)
        self._tell_others([(run, end) for run in lost])
        return lost

    # -- what people do: whoever holds the run is fenced from then on ------------------------------------

    def _not_deleted(self, run: Name) -> Run:
        if self.runs[run].deleted_at is not None:
            raise RefusedError("InvalidTransition")
        return self.runs[run]

    def _not_ended(self, run: Name) -> Run:
        r = self._not_deleted(run)
        if r.status in ENDED:
            raise RefusedError("InvalidTransition")
        return r

    def _put_away(self, message: Message, visible_after: datetime) -> None:
        """Taken away, not lost: the attempt of whoever held it does not count."""
        self._back(message, visible_after, give_back=1 if message.holder else 0)
        message.token = self.next_token(message)

    def cancel(self, *, run: Name, reason: str | None) -> None:
        """The run and its children, and theirs."""
        if self.runs[run].status is RunStatus.CANCELLED:
            return
        if self.runs[run].status in ENDED:
            raise RefusedError("InvalidTransition")
        todo = [run]
        while todo:
            name = todo.pop()
            r = self.runs[name]
            r.status = RunStatus.CANCELLED
            r.waiting_for = r.paused_at = None
            r.last_error = reason or r.last_error
            r.completed_at = r.updated_at = self.now
            del self.messages[self.name_of_message(name)]
            self.events.append((name, "cancelled"))
            todo += [child for child, c in self.runs.items() if c.parent == name and c.status in LIVE]
        self._wake_parents([self.runs[run].parent])

    def pause(self, *, run: Name, reason: str) -> None:
        r = self._not_ended(run)
        r.status, r.waiting_for, r.paused_at, r.updated_at = RunStatus.PAUSED, reason, self.now, self.now
        r.completed_at = None
        message = self.message_of(run)
        assert message
        self._put_away(message, self.now + CENTURY)
        self.events.append((run, "paused"))

    def resume(self, *, run: Name, step: str | None, data: Any) -> None:
        r = self._not_ended(run)
        if step is not None:
            found = self.steps[run].get(step)
            if found is None or found.status is not StepStatus.PAUSED:
                raise RefusedError("InvalidTransition")
            found.status, found.output, found.completed_at = StepStatus.SUCCESS, data, self.now
        if r.status is RunStatus.PAUSED:
            r.status, r.waiting_for, r.paused_at, r.updated_at = RunStatus.PENDING, None, None, self.now
            self.events.append((run, "resumed"))
        self._wake(run)

    def signal(self, *, run: Name, name: str, payload: Any) -> None:
        r = self._not_ended(run)
        self.signals.append(Signal(run, name, payload, self.now))
        if r.status is RunStatus.PAUSED:
            self._wake_waiting(run)
        self.events.append((run, "signalled"))

    def restart(self, *, run: Name) -> None:
        """Of what has ended badly, or whose lease has expired; the steps at fault are reopened."""
        r = self._not_deleted(run)
        if r.status is RunStatus.SUCCESS:
            raise RefusedError("AlreadyCompleted")
        message = self.message_of(run)
        crashed = message and message.holder is not None and message.visible_after <= self.now
        if r.status in LIVE and not crashed:
            raise RefusedError("InvalidTransition")
        self._reopen(run)
        self._begin_anew(run)

    def _reopen(self, run: Name) -> None:
        """What made it fail: the steps that its error names. An error of an older version names none."""
        r = self.runs[run]
        if r.status is not RunStatus.ERROR or r.last_error == "worker_lost":
            return
        named = r.error.get("steps")
        for step, s in list(self.steps[run].items()):
            failed = s.status in (StepStatus.ERROR, StepStatus.PENDING)
            if failed and (named is None or step in named):
                del self.steps[run][step]

    def reset(self, *, run: Name, from_step: str | None) -> None:
        self._not_deleted(run)
        steps = self.steps[run]
        if from_step is not None and from_step not in steps:
            raise RefusedError("InvalidTransition")
        since = steps[from_step].place if from_step else None
        self.steps[run] = {step: s for step, s in steps.items() if since is not None and s.place < since}
        self._begin_anew(run)

    def _clear_end(self, r: Run) -> None:
        r.status = RunStatus.PENDING
        r.output = r.error = r.signature = r.completed_at = r.paused_at = r.waiting_for = None
        r.updated_at = self.now

    def _begin_anew(self, run: Name) -> None:
        self._clear_end(self.runs[run])
        message = self.message_of(run)
        if message is None:
            self._new_message(run)
        else:
            self._put_away(message, self.now)
            message.attempts = 0
        self.events.append((run, "restarted"))

    def delete(self, *, run: Name, reason: str | None) -> None:
        r = self.runs[run]
        if r.deleted_at is not None:
            return
        r.deleted_at = r.updated_at = self.now
        r.delete_reason = reason
        message = self.message_of(run)
        if message:
            self._put_away(message, (self.now if message.holder else message.visible_after) + CENTURY)
        self._wake_parents([r.parent])
        self.events.append((run, "deleted"))

    def restore(self, *, run: Name) -> None:
        r = self.runs[run]
        if r.deleted_at is None:
            raise RefusedError("InvalidTransition")
        if r.key and self._owner(r.key):
            raise RefusedError("IdempotencyConflict")
        r.deleted_at = r.delete_reason = None
        r.updated_at = self.now
        if r.status is RunStatus.RUNNING:
            r.status = RunStatus.PENDING
        message = self.message_of(run)
        if message:
            message.visible_after -= CENTURY
        self._wake_parents([run])
        self.events.append((run, "restored"))
