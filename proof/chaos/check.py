"""After the chaos: what the ledger says was acknowledged and done, against what the database holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pgqrs.inputs import given_text
from proof.chaos.faults import Fault
from proof.chaos.ledger import Line
from proof.chaos.notes import END, NOTES, TAKEN
from proof.chaos.work import BOOKS, EVENTS, FORETOLD

# The database's answer to a question in SQL that all of them understand.
Asked = Callable[[str], Sequence[tuple[object, ...]]]


@dataclass
class Findings:
    """Counts, and a line for each thing that must not be."""

    runs: int = 0
    messages: int = 0
    effects: int = 0
    repeated: int = 0
    most: int = 1
    booked: int = 0
    events: int = 0
    # Of steps and ends: whose writer was looked for in the ledger.
    writes: int = 0
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def bad(self) -> list[str]:
        return [*self.lost, *self.changed, *self.twice, *self.stale, *self.unexplained, *self.wrong]


def compared(asked: Asked, lines: Sequence[Line], faults: Sequence[Fault], *, aftermath: float) -> Findings:
    findings = Findings()
    _runs(findings, asked, lines)
    _messages(findings, asked, lines)
    _exactly_once(findings, asked)
    _events(findings, asked, lines)
    _writers(findings, asked, lines)
    _effects(findings, lines, faults, aftermath)
    return findings


def _runs(findings: Findings, asked: Asked, lines: Sequence[Line]) -> None:
    rows = asked("""
        select r.run_id, w.name, r.status, cast(r.input as text), cast(r.output as text)
        from pgqrs_workflow_runs as r join pgqrs_workflows as w on w.workflow_id = r.workflow_id""")
    findings.runs = len(rows)
    rows = [(run_id, name, status, given_text(str(given)), output) for run_id, name, status, given, output in rows]
    runs = {run_id: (status, given, output) for run_id, name, status, given, output in rows}
    for run_id, name, status, given, output in rows:
        if status != "SUCCESS":
            findings.lost.append(f"run {run_id} of {name} is {status}, not SUCCESS")
        elif output != str(FORETOLD[str(name)](int(str(given)))):
            findings.changed.append(f"run {run_id}, {name}({given}), has the result {output}")
    for line in lines:
        if line.verb == "acked" and line.number not in runs:
            findings.lost.append(f"run {line.number} was acknowledged at {line.at:.3f}, and is not there")
        if line.verb == "result" and line.number in runs and runs[line.number][2] != line.words[1]:
            findings.changed.append(
                f"run {line.number} had the result {line.words[1]}, and has {runs[line.number][2]}"
            )
    for run_id, ends in asked("""
        select run_id, count(*) from pgqrs_workflow_events
        where event_type in ('succeeded', 'failed', 'cancelled') group by run_id having count(*) > 1"""):
        findings.twice.append(f"run {run_id} has ended {ends} times")


def _messages(findings: Findings, asked: Asked, lines: Sequence[Line]) -> None:
    archived = dict(asked("select message_id, cast(payload as text) from pgqrs_archived_messages"))
    findings.messages = len(archived)
    for line in lines:
        if line.verb == "enqueued" and archived.get(line.number) != f'"{line.words[1]}"':
            findings.lost.append(f"message {line.number} was acknowledged, and is not in the archive")
    handled = {line.number for line in lines if line.verb == "handled"}
    findings.lost += [f"message {each} was archived, and never handled" for each in archived.keys() - handled]
    for payload, copies in Counter(archived.values()).items():
        if copies > 1:
            findings.twice.append(f"message {payload} is there {copies} times")


def _exactly_once(findings: Findings, asked: Asked) -> None:
    rows = asked(f"""
        select r.run_id, (select count(*) from {BOOKS} as b where b.run_id = r.run_id)
        from pgqrs_workflow_runs as r join pgqrs_workflows as w on w.workflow_id = r.workflow_id
        where w.name = 'books' and r.status = 'SUCCESS'""")
    findings.booked = 2 * len(rows)
    findings.wrong += [f"run {run_id} booked {times} times in two steps" for run_id, times in rows if times != 2]
    rows = asked("""
        select r.run_id, (select count(*) from pgqrs_signals as s
                          where s.run_id = r.run_id and s.consumed_at is not null)
        from pgqrs_workflow_runs as r join pgqrs_workflows as w on w.workflow_id = r.workflow_id
        where w.name = 'asks' and r.status = 'SUCCESS'""")
    findings.wrong += [f"run {run_id} read {times} signals, not one" for run_id, times in rows if times != 1]


def _events(findings: Findings, asked: Asked, lines: Sequence[Line]) -> None:
    """Each event at least once, under one id, first deliveries in the run's order; nothing left."""
    order: dict[int, list[int]] = defaultdict(list)
    ids: dict[tuple[int, int], set[str]] = defaultdict(set)
    for line in lines:
        if line.verb == "published":
            number = int(line.words[1])
            if number not in order[line.number]:
                order[line.number].append(number)
            ids[line.number, number].add(line.words[2])
    tellers = [
        run_id
        for (run_id,) in asked("""
            select r.run_id from pgqrs_workflow_runs as r join pgqrs_workflows as w on w.workflow_id = r.workflow_id
            where w.name = 'tells' and r.status = 'SUCCESS'""")
    ]
    findings.events = sum(map(len, order.values()))
    for run_id in tellers:
        if order[int(str(run_id))] != list(range(EVENTS)):
            findings.wrong.append(f"run {run_id} told {order[int(str(run_id))]}, not 0, 1, 2")
    findings.wrong += [
        f"event {number} of run {run_id} came under {len(seen)} ids"
        for (run_id, number), seen in ids.items()
        if len(seen) > 1
    ]


def _writers(findings: Findings, asked: Asked, lines: Sequence[Line]) -> None:
    """What was written while a lease was held was done under that very lease."""
    did = {(line.number, line.words[1], line.words[2]) for line in lines if line.verb == "effect"}
    steps = {(run_id, step) for run_id, step, _ in did}
    ended = {(line.number, line.words[1]) for line in lines if line.verb == "ending"}
    for run_id, step, token in asked(
        f"select run_id, step_id, lease_token from {NOTES} where lease_token is not null"
    ):
        if step == TAKEN:
            findings.stale.append(f"run {run_id} was leased while its lease {token} had not ended")
            continue
        if step == END:
            known = (run_id, str(token)) in ended
        elif (run_id, step) in steps:
            known = (run_id, step, str(token)) in did
        else:
            continue
        findings.writes += 1
        if not known:
            findings.stale.append(
                f"{step} of run {run_id} was written under token {token}, whose holder did not do it"
            )


def _effects(findings: Findings, lines: Sequence[Line], faults: Sequence[Fault], aftermath: float) -> None:
    """Never more than one and the faults that those who did it felt, from the first time to the last."""
    done: dict[tuple[int, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line.verb == "effect":
            done[line.number, line.words[1]].append(line)
        elif line.verb == "handled":
            done[line.number, "(message)"].append(line)
    findings.effects = sum(map(len, done.values()))
    findings.most = max(map(len, done.values()), default=0)
    for (number, step), times in done.items():
        if len(times) == 1:
            continue
        findings.repeated += 1
        times.sort(key=lambda line: line.at)
        felt = overlapping(faults, times, aftermath)
        if len(times) > 1 + len(felt):
            said = ", ".join(f"{line.at:.3f} by {line.pid} under {line.words[-1]}" for line in times)
            findings.unexplained.append(
                f"{step} of {number} was done {len(times)} times with {len(felt)} faults "
                f"({', '.join(f'{fault.kind} {fault.began:.3f}-{fault.ended:.3f}' for fault in felt)}): {said}"
            )


def overlapping(faults: Iterable[Fault], times: Sequence[Line], aftermath: float) -> list[Fault]:
    """Those that hit the ones who lost their lease. One that was stopped may do it last."""
    *lost, _ = sorted(times, key=lambda line: int(line.words[-1]))
    pids = {line.pid for line in lost}
    return [fault for fault in faults if fault.hit(pids, times[0].at, times[-1].at, aftermath=aftermath)]
