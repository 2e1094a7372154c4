"""The workflows of examples/, and how each is driven to its end."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pgqrs
from proof import ROOT


@dataclass(frozen=True)
class Program:
    """One workflow of one example: what it is given, what happens around it."""

    name: str
    workflow: Any
    given: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def programs(folder: Path, *, pictures: int) -> Iterator[Program]:
    """All of them; a file of examples/ that has none here is missed by `files`."""
    yield Program("hello", _module("hello").hello, ("world",))
    yield Program("approval", _expenses(), (120,), {"drive": _approve})
    saga = _module("order_saga")
    yield Program("order_saga, shipped", saga.order, ("feather", 5))
    yield Program("order_saga, undone", saga.order, ("anvil", 50))
    album = _module("fan_out").album
    yield Program("fan_out", album, (pictures,))
    yield Program("airflow_port", _module("airflow_port").my_dag)
    versions = _module("two_versions")
    yield Program("two_versions, v1", versions.process_v1, ("a.txt",))
    yield Program("two_versions, v2", versions.process_v2, ("b.txt",))
    yield Program("schedule", _module("schedule").back_up, (), {"drive": _pass_a_night})
    yield _zip_files(folder)


def files(found: list[Program]) -> set[str]:
    """The examples that were looked at."""
    return {f"{program.name.partition(',')[0]}.py" for program in found}


def _module(name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _expenses() -> Any:
    return pgqrs.workflow("expenses")(_module("approval").handler)


def _approve(kit: Any, run: Any) -> None:
    kit.drain()
    kit.resume(run, step="wait_for_approval", data={"approved": True, "by": "ann"})
    kit.drain()


def _pass_a_night(kit: Any, _run: Any) -> None:
    """The run that was triggered, and the one of the slot at half past two."""
    kit.drain()
    kit.advance(days=1)
    kit.drain()
    assert len(kit.runs("back_up")) == 2, "the night's slot fires once, whoever dies"


def _zip_files(folder: Path) -> Program:
    module = _module("zip_files")
    handler: Callable[..., Any] = module.zip_files_handler
    folder.mkdir(exist_ok=True)
    for month in range(1, 4):
        (folder / f"2024-0{month}.txt").write_text(f"report {month}")

    def setup() -> None:
        """The network fails once in each run."""
        module.network_failures[:] = [pgqrs.TransientError("the network is away", retry_after=0)]

    params = module.ZipParams(str(folder), "2024")
    return Program("zip_files", pgqrs.workflow("zip_files")(handler), (params,), {"setup": setup})
