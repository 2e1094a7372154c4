"""A nightly schedule at a daylight-saving change. Time is set by hand here, so that three nights pass in a moment."""

import asyncio
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pgqrs

BERLIN = ZoneInfo("Europe/Berlin")


@pgqrs.workflow(schedule={"cron": "30 2 * * *", "timezone": "Europe/Berlin"})
def back_up() -> None:
    print("backing up")


async def main() -> None:
    clock = pgqrs.ManualClock(datetime(2025, 3, 28, 12, tzinfo=UTC))
    async with pgqrs.connect("sqlite://:memory:", clock=clock) as store:
        worker = await pgqrs.worker("nights").workflows({"back_up": back_up}).create(store)
        for _ in range(3):
            clock.advance(days=1)
            await worker.run_until_idle()
        await worker.close()
        for slot in reversed(await pgqrs.schedules(store).slots("back_up")):
            print(f"{slot.slot_at.astimezone(BERLIN):%d %B %H:%M} {slot.state}")


if __name__ == "__main__":
    asyncio.run(main())
