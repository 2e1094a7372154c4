"""Tasks that a handler gives a context of their own are branches of it all the same."""

import asyncio
import contextvars

import pgqrs


async def test_a_decorated_step_in_a_task_with_an_empty_context_is_recorded(run, clock):
    charged = []

    @pgqrs.step
    async def charge() -> str:
        charged.append(1)
        return "paid"

    async def branch():
        return await charge()

    async def handler(ctx):
        paid = await asyncio.create_task(branch(), context=contextvars.Context())
        await ctx.sleep(60)
        return paid

    waiting = await run(handler)
    clock.advance(60)
    ended = await run(handler, run_id=waiting.run_id)

    assert (ended.status, ended.output(), len(charged)) == ("SUCCESS", "paid", 1)


async def test_verbs_in_tasks_with_empty_contexts_are_numbered_by_their_tasks(run, clock):
    async def handler(ctx):
        async def branch(number):
            await ctx.sleep(60)
            return await ctx.step("work", lambda: number)

        tasks = [asyncio.create_task(branch(number), context=contextvars.Context()) for number in range(3)]
        return await asyncio.gather(*tasks)

    waiting = await run(handler)
    clock.advance(60)
    ended = await run(handler, run_id=waiting.run_id)

    assert (waiting.status, ended.status, ended.output()) == ("PAUSED", "SUCCESS", [0, 1, 2])


async def test_variables_of_the_context_are_those_that_were_given(run):
    language = contextvars.ContextVar("language", default="none")

    async def handler(ctx):
        language.set("of the handler")
        given = contextvars.Context()
        given.run(language.set, "given")

        async def branch():
            return language.get()

        return [
            await asyncio.create_task(branch(), context=given),
            await asyncio.create_task(branch(), context=contextvars.Context()),
            await asyncio.create_task(branch()),
        ]

    assert (await run(handler)).output() == ["given", "none", "of the handler"]
