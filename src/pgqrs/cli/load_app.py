"""The user's code: only what the operator names is imported, and only from where it is named."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from pgqrs.cli.state import application, state
from pgqrs.errors import ConfigError, PgqrsError


def load(given: str | None) -> dict[str, Any]:
    """The workflows of `module`, `module:attribute` or `file.py`, by name."""
    where = named(given)
    return workflows_of(imported(where), where)


def imported(where: str) -> Any:
    """As `found_in`; an error of the application's own code becomes a ConfigError that names its file and line."""
    try:
        return found_in(where)
    except PgqrsError:
        raise
    except Exception as error:
        # str() of a SyntaxError names its line once more.
        said = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(
            f"cannot import the application {where!r}: {_place(error)}{type(error).__name__}: {said}",
            hint=None if state().verbose else "-v shows the traceback",
        ) from error


def _place(error: Exception) -> str:
    """`shop/flows.py, line 3: `: the last line of the application's own that was executed; empty if there is none."""
    if isinstance(error, SyntaxError):
        # Its file was read, and not executed: there is no frame.
        file, line = error.filename, error.lineno
    else:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_ours(each.filename)]
        own = [each for each in frames if not _is_installed(each.filename)] or frames
        file, line = (own[-1].filename, own[-1].lineno) if own else (None, None)
    if file is None:
        return ""
    path = Path(file)
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{here}, line {line}: "


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen ") or Path(file).is_relative_to(Path(__file__).parent)


def _is_installed(file: str) -> bool:
    """Python's own modules, and packages: an error in one of them is met by a line that calls it."""
    return any(Path(file).is_relative_to(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib"))


def named(given: str | None) -> str:
    """Where the application is: as given, else as the settings say."""
    where = given or application()
    if where is None:
        raise ConfigError(
            "name the application: module, module:attribute or file.py", hint="or set PGQRS_APP or --app"
        )
    return where


def found_in(where: str) -> Any:
    """What `module`, `module:attribute` or `file.py:attribute` stands for."""
    path, _, attribute = where.partition(":") if not where.endswith(".py") else (where, "", "")
    found: Any = _module(path)
    for part in filter(None, attribute.split(".")):
        if not hasattr(found, part):
            raise ConfigError(f"{path!r} has no {attribute!r}", hint="name a module, or something in it")
        found = getattr(found, part)
    return found


def _module(path: str) -> ModuleType:
    if path.endswith(".py") or "/" in path:
        return _file(Path(path))
    # The installed command has its own folder on the path, not the one it is called in. First, as with `python -m`:
    # the project's module wins over an installed one of its name.
    _find_in(Path.cwd())
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"there is no module {path!r} in {str(Path.cwd())!r} or on Python's path") from None


def _file(file: Path) -> ModuleType:
    if not file.is_file():
        raise ConfigError(f"there is no file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(file)!r} is no Python file")
    # A file may import its neighbours, as if it were run.
    _find_in(file.resolve().parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _find_in(folder: Path) -> None:
    """Let modules of the folder be imported, before any other of the same name."""
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))


def workflows_of(found: Any, where: str) -> dict[str, Any]:
    from pgqrs.api.workflow import discover_workflows

    if isinstance(found, dict):
        return found
    if isinstance(found, ModuleType):
        discovered = discover_workflows(found)
    else:
        discovered = {found.name: found} if hasattr(found, "__pgqrs_handler__") else {}
    if not discovered:
        raise ConfigError(
            f"{where!r} has no workflows", hint="decorate functions with @pgqrs.workflow, or name a mapping"
        )
    return dict(discovered)
