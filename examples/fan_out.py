"""One run starts many: a child per picture, four at a time, their results in the order of the pictures."""

import asyncio

import pgqrs


@pgqrs.workflow
async def thumbnail(ctx: pgqrs.Context, picture: str) -> str:
    return await ctx.step("resize", lambda: picture.replace(".jpg", ".small.jpg"))


@pgqrs.workflow
async def album(ctx: pgqrs.Context, count: int) -> list[str]:
    pictures = await ctx.step("list", lambda: [f"{n:02}.jpg" for n in range(count)])
    return await ctx.map(thumbnail, pictures, limit=4)


async def main() -> None:
    async with pgqrs.connect(install=True) as store:
        worker = await pgqrs.worker("worker-1").workflows({"album": album, "thumbnail": thumbnail}).create(store)
        run_id = await album.trigger(10).execute(store)
        await worker.run_until_idle()
        await worker.close()

        run = await album.get_run(run_id, store)
        children = [each for each in await thumbnail.runs(store) if each.parent_run_id == run_id]
        print(f"{run.status}: {len(children)} children")
        print(*await run.result())


if __name__ == "__main__":
    asyncio.run(main())
