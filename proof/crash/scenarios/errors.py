"""Errors: handlers that catch, compensate, clean up, and branch on what an error says.

Each of them waits between what it has seen and what it does about it, so that more than one pass sees the error.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pgqrs
from pgqrs.types import RunStatus
from proof.crash.scenarios.payments import Payments
from proof.crash.scenarios.scenario import Scenario

TWICE = pgqrs.RetryPolicy(max_attempts=2)


class Refused(Exception):
    """What a shop raises: a reason for people, a code for programs."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason, code)
        self.code = code


def seen(error: BaseException, *attributes: str) -> dict[str, Any]:
    """Return all that a handler can tell of an error."""
    cause = error.__cause__
    return {
        "class": f"{type(error).__module__}.{type(error).__qualname__}",
        "text": str(error),
        "args": repr(error.args),
        "cause": None if cause is None else repr(cause),
        **{name: getattr(error, name, "missing") for name in attributes},
    }


class Catching(Scenario):
    """Branches on an attribute of an error whose class is no name of this module."""

    name = "catching"
    right: ClassVar[Any] = ["early", "told"]

    async def handler(self, ctx):
        async def parse():
            self.did(ctx, "parse")
            return json.loads("{")

        try:
            await ctx.step("parse", parse)
            said = "parsed"
        except json.JSONDecodeError as error:
            self.saw(ctx, "error", seen(error, "pos", "lineno", "msg", "doc"))
            said = "early" if error.pos <= 1 else "late"
        await self.step(ctx, said)
        await ctx.sleep(60)
        return [said, await self.step(ctx, "tell", "told")]


class Compensating(Scenario):
    """A charge is refunded because the shipment, tried twice, is refused."""

    name = "compensating"
    often: ClassVar[dict[str, int]] = {"compensating ship": 2}
    right = "refunded"

    async def handler(self, ctx):
        async def ship():
            self.did(ctx, "ship")
            raise Refused("out of stock", code=409)

        await self.step(ctx, "charge")
        try:
            await ctx.step("ship", ship, retry=TWICE)
        except Refused as error:
            self.saw(ctx, "error", seen(error, "code"))
            await self.step(ctx, "refund")
            await ctx.sleep(60)
            await self.step(ctx, "apologise" if error.code == 409 else "investigate")
            return "refunded"
        return "shipped"


class CompensatingPlainly(Scenario):
    """The same in a plain function, which runs in a thread."""

    name = "compensating_plainly"
    threads = True
    right = "refunded"

    @property
    def handlers(self):
        return {self.name: self.plain}

    def plain(self, ctx):
        def ship():
            self.did(ctx, "ship")
            raise Refused("out of stock", code=409)

        ctx.step("charge", lambda: self.did(ctx, "charge"))
        try:
            ctx.step("ship", ship)
        except Refused as error:
            self.saw(ctx, "error", seen(error, "code"))
            ctx.step("refund", lambda: self.did(ctx, "refund"))
            ctx.sleep(60)
            ctx.step("apologise" if error.code == 409 else "investigate", lambda: self.did(ctx, "apologise"))
            return "refunded"
        return "shipped"


class Charged(Payments):
    """Nothing goes wrong in it: whatever happens to the engine, nothing is refunded."""

    name = "charged"
    right: ClassVar[Any] = ["paid", 1, "shipped"]

    async def handler(self, ctx):
        try:
            receipt = await self.step(ctx, "charge", "paid")
            self.saw(ctx, "receipt", receipt)
            booked = await ctx.transaction("book", self.paying())
            self.saw(ctx, "booked", booked)
            await ctx.emit("order.paid", {"receipt": receipt})
            await ctx.sleep(60)
            shipped = await self.step(ctx, "ship", "shipped")
        except Exception as error:  # noqa: BLE001 - as users do
            self.saw(ctx, "error", seen(error))
            await self.step(ctx, "refund")
            return "refunded"
        return [receipt, booked, shipped]

    async def check(self):
        await super().check()
        assert await self.paid() == 1, f"booked {await self.paid()} times, not once"


class CleaningUp(Scenario):
    """A step in a `finally`, which a wait, a crash and a lost lease pass through too early."""

    name = "cleaning_up"
    right = "used"

    async def handler(self, ctx):
        try:
            await self.step(ctx, "open")
            await ctx.sleep(60)
            return await self.step(ctx, "use", "used")
        finally:
            await self.step(ctx, "close")

    async def check(self):
        await super().check()
        order = list(dict.fromkeys(line["what"] for line in self.world.ledger.lines("effect")))
        assert order == [f"{self.name} {step}" for step in ("open", "use", "close")], order


class GivingUp(Scenario):
    """Compensates, and raises another error from the first one; the run ends in ERROR."""

    name = "giving_up"

    async def handler(self, ctx):
        async def ship():
            self.did(ctx, "ship")
            raise Refused("out of stock", code=410)

        await self.step(ctx, "charge")
        try:
            await ctx.step("ship", ship)
        except Refused as error:
            await ctx.sleep(60)
            self.saw(ctx, "error", seen(error, "code"))
            await self.step(ctx, "refund")
            raise pgqrs.PermanentError(f"given up: {error.code}") from error

    async def check(self):
        run = await self.world.run(self.name, await self.world.trigger(self.name))
        assert run.status is RunStatus.ERROR, f"it is {run.status}: {run.last_error}"
        assert run.last_error == "PermanentError: given up: 410", run.last_error


class FailingTransaction(Payments):
    """A user's function raises OSError in a transaction: rolled back, caught, and never called again for it."""

    name = "failing_transaction"
    right: ClassVar[Any] = ["no printer", 1]

    async def handler(self, ctx):
        async def fails(tx):
            self.did(ctx, "print")
            await tx.execute(f"insert into {self.table(self.world.store)} (amount) values (7)")
            raise OSError(19, "no printer")

        said = ""
        try:
            await ctx.transaction("print", fails)
        except OSError as error:
            self.saw(ctx, "error", seen(error, "errno", "strerror"))
            said = str(error.strerror)
            await self.step(ctx, "refund")
        await ctx.sleep(60)
        return [said, await ctx.transaction("pay", self.paying())]

    async def check(self):
        await super().check()
        assert await self.paid() == 1, f"paid {await self.paid()} times, not once"


class FailedChild(Scenario):
    """A parent catches its child's failure, and compensates."""

    name = "failed_child"
    right = "compensated"

    @property
    def handlers(self):
        return {self.name: self.handler, "failing_child": self.child}

    async def handler(self, ctx):
        await self.step(ctx, "before")
        child = await ctx.spawn("failing_child")
        try:
            await child.result()
        except pgqrs.ExecutionFailed as error:
            self.saw(ctx, "error", seen(error))
            await self.step(ctx, "compensate")
            await ctx.sleep(60)
            return await self.step(ctx, "after", "compensated")
        return "succeeded"

    async def child(self, ctx):
        await self.step(ctx, "work")
        raise pgqrs.PermanentError("broken")

    async def check(self):
        await super().check()
        assert await self.count_runs("failing_child", status=RunStatus.ERROR) == 1
        assert await self.count_runs("failing_child") == 1


class CancelledChild(Scenario):
    """A child is cancelled by a person; its parent catches that, and is not cancelled itself."""

    name = "cancelled_child"
    right = "without it"

    @property
    def handlers(self):
        return {self.name: self.handler, "waiting_child": self.child}

    async def handler(self, ctx):
        child = await ctx.spawn("waiting_child")
        try:
            await child.result()
        except pgqrs.RunCancelled as error:
            self.saw(ctx, "error", seen(error))
            await self.step(ctx, "compensate")
            await ctx.sleep(60)
            return await self.step(ctx, "after", "without it")
        return "with it"

    async def child(self, ctx):
        await self.step(ctx, "before")
        await ctx.wait_for("nothing")
        await self.step(ctx, "never")

    async def program(self):
        run_id = await self.world.trigger(self.name)
        flow = pgqrs.workflow("waiting_child")

        async def is_there():
            found = await flow.runs(self.world.store)
            return bool(found) and found[0].status in (RunStatus.PAUSED, RunStatus.CANCELLED)

        await self.world.work_until(is_there)
        with self.world.unseen():
            [child] = await flow.runs(self.world.store)
        await self.world.once("cancel", lambda: flow.cancel(child.run_id, self.world.store))
        await self.world.work_until_ended(self.name, run_id)

    async def check(self):
        await super().check()
        assert await self.count_runs("waiting_child", status=RunStatus.CANCELLED) == 1
