"""A class of errors is found in every process that runs the same program, and in none that does not."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pgqrs


def test_the_handlers_own_module_may_have_another_name(tmp_path):
    """A script is `__main__` in one process, and `app` in the worker's."""
    (tmp_path / "app.py").write_text(
        textwrap.dedent(
            """
            import sys
            from pgqrs.engine.recorded_errors import Program, raised_again, record_of

            class Mine(ValueError):
                class Inner(KeyError):
                    pass

            def handler(ctx): ...

            if __name__ == "__main__":
                print(record_of(Mine.Inner("k"), program=Program.of(handler)))
            """
        )
    )
    written = _run(tmp_path, "app.py")
    reader = (
        "import sys, app; from pgqrs.engine.recorded_errors import *;"
        "back = raised_again(sys.stdin.read(), program=Program.of(app.handler), step_id='s');"
        "print(type(back) is app.Mine.Inner, back.args)"
    )

    assert _run(tmp_path, "-c", reader, given=written) == "True ('k',)\n"


LAZY = """
def handler(ctx):
    from shop import gateway
    gateway.charge()
"""


def test_a_module_that_the_program_imports_late_is_imported_to_find_its_class(tmp_path):
    _shop(tmp_path)
    record = _in_process(
        tmp_path, "try: app.handler(None)\nexcept Exception as error: print(record_of(error, program=P))"
    )

    read = _in_process(
        tmp_path,
        "before = 'shop' in sys.modules\n"
        "back = raised_again(sys.stdin.read(), program=P, step_id='s')\n"
        "print(before, type(back).__module__, type(back).__name__, back.code)",
        record,
    )

    assert read == "False shop.errors Down 503\n"


def test_a_class_of_a_module_that_the_program_does_not_import_has_a_stand_in_in_every_process(tmp_path):
    _shop(tmp_path)
    (tmp_path / "app.py").write_text("def handler(ctx): ...\n")
    seen = "print(type(back).__name__, back.kind, isinstance(back, OSError))"
    record = _in_process(
        tmp_path,
        "import shop.gateway\ntry: shop.gateway.charge()\nexcept Exception as error: print(record_of(error, program=P))",
    )

    first = _in_process(tmp_path, f"back = raised_again(sys.stdin.read(), program=P, step_id='s')\n{seen}", record)
    loaded = _in_process(
        tmp_path,
        f"import shop.gateway\nback = raised_again(sys.stdin.read(), program=P, step_id='s')\n{seen}",
        record,
    )

    assert first == loaded == "StepFailed Down True\n"


def test_imports_for_type_checkers_and_for_scripts_are_not_the_programs(tmp_path):
    _shop(tmp_path)
    (tmp_path / "app.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import shop\n"
        "if __name__ == '__main__':\n    import shop\n"
        "def handler(ctx): ...\n"
    )
    record = json.dumps({"type": "Down", "module": "shop.errors", "qualname": "Down", "args": ["x"]})

    read = _in_process(
        tmp_path,
        "print(type(raised_again(sys.stdin.read(), program=P, step_id='s')).__name__, 'shop' in sys.modules)",
        record,
    )

    assert read == "StepFailed False\n"


def test_the_programs_other_modules_count_too(tmp_path):
    _shop(tmp_path)
    (tmp_path / "app.py").write_text("import steps\ndef handler(ctx): ...\n")
    (tmp_path / "steps.py").write_text("def pay():\n    import later\n")
    (tmp_path / "later.py").write_text("def pay():\n    import shop.gateway\n")
    record = json.dumps({"type": "Down", "module": "shop.errors", "qualname": "Down", "args": ["x"]})

    read = _in_process(
        tmp_path,
        "print(type(raised_again(sys.stdin.read(), program=P, step_id='s')).__name__, 'later' in sys.modules)",
        record,
    )

    assert read == "Down False\n"


def _shop(folder):
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text("")
    (folder / "shop" / "errors.py").write_text(
        "class Down(ConnectionError):\n    def __init__(self, *, code):\n        self.code = code\n"
    )
    (folder / "shop" / "gateway.py").write_text("from .errors import Down\ndef charge():\n    raise Down(code=503)\n")
    (folder / "app.py").write_text(LAZY)


def _in_process(folder, code, given=""):
    head = "import sys, app\nfrom pgqrs.engine.recorded_errors import *\nP = Program.of(app.handler)\n"
    return _run(folder, "-c", head + code, given=given)


def _run(folder, *command, given=""):
    environment = {**os.environ, "PYTHONPATH": str(Path(pgqrs.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
