"""Step ids: every one that is written is read back as it was, whatever the step is called and wherever it stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqrs.errors import ConfigError
from pgqrs.text import step_ids
from pgqrs.text.names import checked_step_name


def _is_allowed(name):
    try:
        return bool(checked_step_name(name))
    except ConfigError:
        return False


ENGINE = ["sleep", "pause", "first", "spawn", "now", "uuid", "random", "wait_for", "result", "emit"]
# Names as users have them, and such as come close to the engine's own.
NAMES = st.one_of(
    st.text(min_size=1, max_size=30),
    st.builds(lambda *parts: "".join(parts), st.sampled_from(ENGINE), st.sampled_from(["", ":", "_", "s", "."]), st.text(max_size=9)),
).filter(_is_allowed)  # fmt: skip
PATHS = st.lists(st.integers(1, 99), max_size=4).map(lambda numbers: ".".join(map(str, numbers)))
NUMBERS = st.integers(1, 10**9)
RUN_IDS = st.integers(1, 10**18 - 1)
EVENTS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True)


@given(NAMES, PATHS, NUMBERS)
def test_an_id_is_read_back_in_its_parts(name, path, number):
    written = step_ids.write(name, path, number)

    assert step_ids.read(written) == (name, path, number)
    assert (step_ids.name_of(written), step_ids.branch_of(written)) == (name, path)


@given(st.lists(st.tuples(NAMES, PATHS, NUMBERS), min_size=2, max_size=8, unique=True))
def test_no_two_steps_have_one_id(places):
    assert len({step_ids.write(*place) for place in places}) == len(places)


@given(NAMES, PATHS, NUMBERS)
def test_the_signal_of_a_wait_is_read_back(signal, path, number):
    written = step_ids.write(step_ids.wait_for(signal), path, number)

    assert step_ids.signal_of(written) == signal
    assert step_ids.is_wait(written)
    assert step_ids.is_answered_by_people(written)
    assert step_ids.child_of(written) is None


@given(RUN_IDS, PATHS, NUMBERS)
def test_the_child_of_a_result_is_read_back(run_id, path, number):
    written = step_ids.write(step_ids.result(run_id), path, number)

    assert step_ids.child_of(written) == run_id
    assert step_ids.is_wait(written)
    assert not step_ids.is_answered_by_people(written)
    assert step_ids.work_of(written) == "result:"


@given(EVENTS, PATHS, NUMBERS)
def test_the_event_of_an_emission_is_read_back(event_type, path, number):
    written = step_ids.write(step_ids.emit(event_type), path, number)

    assert step_ids.event_of(written) == event_type
    assert not step_ids.is_wait(written)


@given(
    st.sampled_from([step_ids.SLEEP, step_ids.PAUSE, step_ids.SPAWN, step_ids.FIRST, step_ids.NOW]), PATHS, NUMBERS
)
def test_a_verb_of_the_engine_is_read_back(name, path, number):
    written = step_ids.write(name, path, number)

    assert step_ids.is_sleep(written) == (name == "sleep")
    assert step_ids.is_pause(written) == (name == "pause")
    assert step_ids.is_spawn(written) == (name == "spawn")
    assert step_ids.is_wait(written) == (name in ("sleep", "pause"))


@given(NAMES.filter(lambda name: ":" not in name and name not in ENGINE), PATHS, NUMBERS)
def test_a_users_step_is_never_a_wait(name, path, number):
    written = step_ids.write(name, path, number)

    assert not step_ids.is_wait(written)
    assert (step_ids.signal_of(written), step_ids.child_of(written), step_ids.event_of(written)) == (None, None, None)
    assert step_ids.work_of(written) == name


@pytest.mark.parametrize(
    ("step_id", "found"),
    [("use@1#2", "use@*"), ("use@2", "use@*"), ("use#2", "use#2"), ("result:7#2", "result:#2"), ("result:7@1", "result:@*")],
)  # fmt: skip
def test_an_id_without_its_branch(step_id, found):
    assert step_ids.anywhere(step_id) == found


@given(st.text(max_size=40))
def test_any_text_in_a_database_can_be_read(text):
    name, path, number = step_ids.read(text)

    assert text.startswith(name)
    assert path in text
    assert number >= 0
