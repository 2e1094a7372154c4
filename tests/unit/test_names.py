"""Names: what is allowed, and that the rest is refused by every door before it reaches SQL."""

import pytest

import pgqrs
from pgqrs.api.arguments import check_texts, checked_key
from pgqrs.text.names import checked_event_type, checked_name, checked_schema, checked_step_name

GOOD = ["a", "A", "0", "_", "billing.invoice_charge.v1", "zip_files", "a-b:c", "x" * 255, "_.-:"]
BAD = [
    "", " ", "a b", "x" * 256, "a'b", 'a"b', "a;b", "a%b", "a\\b", "a\0b", "a\nb", "../a", "a/b", ".a", "-a", ":a",
    "é", "名", "a\u202eb", "$a", "a`b", "{now}", "Robert'); drop table pgqrs_queues;--", "x" * 1_000_000,
    None, 1, 1.5, b"a", ["a"], True,
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_ordinary_names_are_allowed(name):
    assert checked_name("queue", name) == name


NO_TEXT = [None, 1, 1.5, b"a", ["a"], True]


@pytest.mark.parametrize("name", NO_TEXT, ids=repr)
@pytest.mark.parametrize(
    ("check", "what"),
    [
        (lambda name: checked_name("queue", name), "queue name"),
        (checked_schema, "schema name"),
        (checked_step_name, "step name"),
        (checked_event_type, "event type"),
        (checked_key, "idempotency key"),
    ],
)
def test_what_is_no_string_is_refused_with_its_type(check, what, name):
    """The finding: the key 7 was refused as '7', which is a key that is allowed."""
    with pytest.raises(pgqrs.ConfigError) as caught:
        check(name)

    assert str(caught.value) == f"{what} must be a string, got {name!r} ({type(name).__name__})"


def test_a_reason_that_is_no_string_is_refused_with_its_type():
    with pytest.raises(pgqrs.ConfigError, match=r"^reason must be a string, got 7 \(int\)$"):
        check_texts(reason=7)


@pytest.mark.parametrize("name", [each for each in BAD if isinstance(each, str)], ids=lambda name: repr(name)[:30])
def test_other_names_are_refused_with_what_is_allowed(name):
    with pytest.raises(pgqrs.ConfigError, match=r"queue name .* is not allowed; use") as caught:
        checked_name("queue", name)

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["public", "tenant_a", "_x", "a" * 41])
def test_ordinary_schemas_are_allowed(name):
    assert checked_schema(name) == name


@pytest.mark.parametrize(
    "name",
    [*(each for each in BAD if each is not None), "A", "1a", "a" * 42, "pg_catalog", "a.b", "a-b"],
    ids=lambda n: repr(n)[:30],
)
def test_other_schemas_are_refused(name):
    with pytest.raises(pgqrs.ConfigError, match="schema name"):
        pgqrs.Config(schema=name)


@pytest.mark.row("B7.10")
async def test_every_door_refuses_a_bad_name_and_nothing_is_harmed():
    async with pgqrs.connect("sqlite://:memory:") as store:
        admin = pgqrs.admin(store)
        await store.create_queue("canary")
        doors = [
            store.create_queue, store.producer, store.consumer, store.wake, admin.queue_metrics, admin.pause_queue,
            admin.resume_queue, admin.purge, admin.delete_queue, admin.dead_letters, admin.replay,
        ]  # fmt: skip
        for door in doors:
            for name in BAD:
                with pytest.raises(pgqrs.ConfigError):
                    await door(name)
        for name in BAD:
            if name is not None:
                with pytest.raises(pgqrs.ConfigError):
                    await store.consumer("canary", name=name)
        assert await admin.queues() == ["canary"]
