"""Binding: which parameter of a workflow gets which part of the input that a run was given.

One rule for every way in. Arguments by name are bound by name. One plain value (of `workflow(name).trigger(value)`,
HTTP, SQL, a schedule) is bound so:

    a workflow with one parameter     the value is its argument; if it does not fit, and is an object with just the
                                      parameter's name, the argument by name
    several, and all required given   an object of arguments that fit, without other keys, is the arguments by name
    else                              the argument of the one required parameter, or of the first if none is required

Names that a person typed (`pgqrs run trigger order amount:=5`) are arguments by name if the workflow has such
parameters, else the fields of one value.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple, Protocol

from pgqrs.errors import InvalidArguments, PayloadTooLarge
from pgqrs.inputs import Form, Typed, marked
from pgqrs.serialization import Encoded, decode, encode, parsed, text_of
from pgqrs.text.durations import shown


class Signature(Protocol):
    """What a workflow takes, as its code says, or as a worker has stored it."""

    @property
    def workflow(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def required(self) -> frozenset[str]: ...

    def misfit(self, name: str, text: str) -> str | None:
        """Return why an encoded value cannot be that argument (`must be an int, got 'lots'`), or None."""
        ...


class Storable(NamedTuple):
    """A value that a trigger was given, encoded; `form` is None if its handler has bound it already."""

    text: str
    form: Form | None


def storable(value: Any, *, max_bytes: int) -> Storable:
    """Return the value encoded, or raise SerializationError."""
    if isinstance(value, Encoded):
        # Before anybody knew the store and its limit.
        if (size := len(value.text.encode())) > max_bytes:
            raise PayloadTooLarge(size, max_bytes)
        return Storable(value.text, None)
    if not isinstance(value, Typed):
        return Storable(encode(value, max_bytes=max_bytes), Form.PLAIN)
    text = encode(dict(value), max_bytes=max_bytes)
    # Names that look like a tag are no parameters.
    return Storable(text, Form.PLAIN if any(name.startswith("$") for name in value) else Form.TYPED)


def input_text(signature: Signature | None, value: Storable) -> str:
    """Return what is stored for one value that a trigger was given, or raise InvalidArguments.

    Without a signature it is stored as it is, and bound by the worker that reads it.
    """
    text, form = value
    if form is None:
        return text
    if signature is None:
        if form is Form.PLAIN:
            return text
        return marked(form, {name: text_of(each) for name, each in parsed(text).items()})
    content = parsed(text)
    bound = bind(signature, form, content, strict=True)
    if content is None and not bound:
        return text
    return named_text(signature, {name: text_of(each) for name, each in bound.items()})


def named_text(signature: Signature, texts: dict[str, str]) -> str:
    """Return what is stored for arguments by name, or raise InvalidArguments for the first that does not fit."""
    for name, text in texts.items():
        if (reason := signature.misfit(name, text)) is not None:
            raise InvalidArguments(signature.workflow, f"{name!r} {reason}", parameter=name)
    return marked(Form.VALUE if len(signature.names) == 1 else Form.NAMES, texts)


def bind(signature: Signature, form: Form, content: Any, *, strict: bool) -> dict[str, Any]:
    """Return the parts of a parsed input by parameter.

    At the trigger it is `strict`. For what is stored already, arguments that the code no longer takes are left out.
    """
    if form in (Form.NAMES, Form.VALUE):
        return _by_name(signature, content, strict=strict)
    if content is None:
        return _nothing(signature)
    if not signature.names:
        if strict and content != {}:
            raise InvalidArguments(signature.workflow, f"it takes no arguments, got {_value(content)}")
        return {}
    target = _target(signature)
    if form is Form.TYPED and (
        content.keys() <= set(signature.names)
        or _misspelt(signature, content)
        or (strict and target is not None and _takes_no_object(signature, target, content))
    ):
        return _by_name(signature, content, strict=strict)
    if target is not None and _is_the_value(signature, target, content, strict=strict):
        return {target: content}
    if isinstance(content, dict):
        return _by_name(signature, content, strict=strict)
    wanted = ", ".join(signature.names)
    raise InvalidArguments(
        signature.workflow,
        f"it takes {len(signature.names)} arguments ({wanted}): give them by name, got {_value(content)}",
    )


def _is_the_value(signature: Signature, target: str, content: Any, *, strict: bool) -> bool:
    """Is all of it one argument, and not arguments by name?"""
    if not isinstance(content, dict):
        return True
    names, given = set(signature.names), content.keys()
    misspelt = strict and _misspelt(signature, content)
    if len(names) == 1:
        # One that does not fit, and is no argument by name either, is named as the argument that does not fit.
        return _fits(signature, target, content) if given == names or misspelt else True
    shared = given & names
    if signature.required <= given:
        # An empty object is no arguments.
        by_name = bool(shared or not given) and all(_fits(signature, name, content[name]) for name in shared)
    else:
        by_name = strict and bool(shared)
    return not by_name and not misspelt and _fits(signature, target, content)


def _by_name(signature: Signature, content: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    unknown = [name for name in content if name not in signature.names]
    if strict and unknown:
        takes = f"it takes {', '.join(signature.names)}" if signature.names else "it takes no arguments"
        raise InvalidArguments(
            signature.workflow,
            f"there is no parameter {unknown[0]!r}",
            hint=f"{takes}",
            parameter=unknown[0],
            suggestion=_near(signature, unknown[0]),
        )
    missing = [name for name in signature.names if name in signature.required and name not in content]
    if missing:
        raise InvalidArguments(signature.workflow, f"{missing[0]!r} is missing", parameter=missing[0])
    return {name: content[name] for name in signature.names if name in content}


def _nothing(signature: Signature) -> dict[str, Any]:
    """No input: defaults, or None for the one parameter that has none, if it may be None."""
    if not signature.required:
        return {}
    target = _target(signature)
    if target is not None and _fits(signature, target, None):
        return {target: None}
    missing = next(name for name in signature.names if name in signature.required)
    raise InvalidArguments(signature.workflow, f"{missing!r} is missing", parameter=missing)


def _target(signature: Signature) -> str | None:
    """The parameter that gets a single value; None if one value is not enough."""
    if len(signature.required) > 1:
        return None
    return next(iter(signature.required), signature.names[0])


def _fits(signature: Signature, name: str, content: Any) -> bool:
    return signature.misfit(name, text_of(content)) is None


def _takes_no_object(signature: Signature, name: str, content: dict[str, Any]) -> bool:
    """Is the whole object what does not fit, and not one of its fields? Then its names were meant as parameters."""
    reason = signature.misfit(name, text_of(content)) or ""
    return reason.startswith("must be ") and reason.endswith(f", got {_value(content)}")


def _misspelt(signature: Signature, content: dict[str, Any]) -> bool:
    """Does it look like arguments by name with a mistake in them?"""
    return any(name not in signature.names and _near(signature, name) for name in content)


def _near(signature: Signature, name: str) -> str | None:
    near = difflib.get_close_matches(name, signature.names, n=1, cutoff=0.75)
    return near[0] if near else None


def _value(content: Any) -> str:
    return shown(decode(text_of(content)))
