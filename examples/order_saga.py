"""A saga: when a step fails, what was done before is undone, last first; undoing is steps too, so it happens once."""

import asyncio
from collections.abc import Awaitable, Callable

import pgqrs


@pgqrs.step
async def reserve(item: str) -> str:
    print(f"reserve {item}")
    return f"reservation of {item}"


@pgqrs.step
async def release(reservation: str) -> None:
    print(f"release the {reservation}")


@pgqrs.step
async def charge(amount: int) -> str:
    print(f"charge {amount} EUR")
    return f"payment of {amount} EUR"


@pgqrs.step
async def refund(payment: str) -> None:
    print(f"refund the {payment}")


@pgqrs.step
async def ship(item: str) -> str:
    if item == "anvil":
        print("shipping fails")
        raise pgqrs.PermanentError(f"nobody carries an {item}")
    print(f"ship {item}")
    return f"parcel with {item}"


@pgqrs.workflow
async def order(item: str, amount: int) -> str:
    undo: list[tuple[Callable[[str], Awaitable[None]], str]] = []
    try:
        reservation = await reserve(item)
        undo.append((release, reservation))
        payment = await charge(amount)
        undo.append((refund, payment))
        return f"done: {await ship(item)}"
    except pgqrs.PermanentError as error:
        for compensate, what in reversed(undo):
            await compensate(what)
        return f"undone: {error}"


async def main() -> None:
    print(await order("feather", 5))
    print(await order("anvil", 50))


if __name__ == "__main__":
    asyncio.run(main())
