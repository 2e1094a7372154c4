"""Names: what is allowed, and that the rest is refused by every door before it reaches SQL."""

import pytest

import pgqrs
from pgqrs.names import checked_name, checked_schema

GOOD = ["a", "A", "0", "_", "billing.invoice_charge.v1", "zip_files", "a-b:c", "x" * 255, "_.-:"]
BAD = [
    "", " ", "a b", "x" * 256, "a'b", 'a"b', "a;b", "a%b", "a\\b", "a\0b", "a\nb", "../a", "a/b", ".a", "-a", ":a",
    "é", "名", "a\u202eb", "$a", "a`b", "{now}", "Robert'); drop table pgqrs_queues;--", "x" * 1_000_000,
    None, 1, 1.5, b"a", ["a"], True,
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_ordinary_names_are_allowed(name):
    assert checked_name("queue", name) == name


@pytest.mark.parametrize("name", BAD, ids=lambda name: repr(name)[:30])
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
