"""Stand in for an attribute of an error that could not be recorded: any use of it says so."""

from __future__ import annotations

from typing import Any, NoReturn

from pgqrs.errors import NotRecorded

_OPERATIONS = (
    *("bool", "int", "float", "index", "bytes", "len", "hash", "call", "neg", "reduce_ex"),
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"),
    *("floordiv", "rfloordiv", "mod", "rmod", "and", "rand", "or", "ror", "matmul", "rmatmul", "pow", "rpow"),
    *("iter", "next", "contains", "getitem", "setitem", "delitem", "setattr", "delattr"),
    *("enter", "exit", "aenter", "aexit", "await", "aiter", "anext"),
)


class Unrecorded:
    """An attribute that a step's error had, and its record has not. `repr` and `str` name it; all else raises."""

    __slots__ = ("_kind", "_large", "_of")

    def __init__(self, of: str, kind: str, *, large: bool) -> None:
        object.__setattr__(self, "_of", of)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_large", large)

    def __repr__(self) -> str:
        return f"<{object.__getattribute__(self, '_of')}: not recorded>"

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            # Debuggers, test runners and `isinstance` ask for it of anything; the answer is true.
            return Unrecorded
        return _refuse(self)


def _refuse(held: Unrecorded, *_args: Any) -> NoReturn:
    of, kind, large = details_of(held)
    why = f"this {kind} is too large" if large else f"{_article(kind)} {kind} cannot be stored"
    raise NotRecorded(
        f"{of} was not recorded, because {why}",
        hint="read it inside the step and raise or return what you need",
        attribute=of,
    )


def _article(noun: str) -> str:
    return "an" if noun[:1] in "aeiouAEIO" else "a"


def details_of(held: Unrecorded) -> tuple[str, str, bool]:
    """Return of what attribute it is, the type that could not be recorded, and whether it was too large."""
    read = object.__getattribute__
    return read(held, "_of"), read(held, "_kind"), read(held, "_large")


for _name in _OPERATIONS:
    setattr(Unrecorded, f"__{_name}__", _refuse)
