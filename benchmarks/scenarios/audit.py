"""What the whole history of runs costs: one-step runs with audit none, normal and full, in turns."""

from typing import Any

from benchmarks.scenarios.interleaved import executed, in_turns
from benchmarks.scenarios.place import Place
from benchmarks.scenarios.running import settings


async def audit(place: Place) -> dict[str, Any]:
    async with (
        place.store(audit="none") as none,
        place.store(audit="normal") as normal,
        place.store(audit="full") as full,
    ):
        await executed(none, place, place.count // 10)
        rates = await in_turns(
            {
                "none": lambda: executed(none, place, place.count),
                "normal": lambda: executed(normal, place, place.count),
                "full": lambda: executed(full, place, place.count),
            }
        )
    return {
        "count": place.count,
        "rate": rates["full"],
        "ratio": rates["full"] / rates["none"],
        **{f"rate_{name}": rate for name, rate in rates.items()},
        "settings": f"{settings(place).removesuffix(', audit normal')}; ratio: full to none",
    }
