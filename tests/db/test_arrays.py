"""Values that travel as the text of an array arrive as they are, whatever they look like."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pgqrs.db import postgres_arrays
from pgqrs.db.queries import Query

TEXTS = [
    *("", "NULL", "null", "None", "a", '"', "\\", '\\"', "{", "}", "{a,b}", ",", " ", "\n", "\t", "a,b", "'", "''"),
    *('{"a": "b\\\\c"}', "ä\U0001f600", "\\x41", "$1", ":now", "%s", '""', "\\\\"),
]
GIVEN = Query("given", "select given.a, given.b from {rows given: a id, b text} where true order by given.position")


async def received(store, values):
    rows = await store.database.fetch(GIVEN, given=list(enumerate(values)))
    assert [row[0] for row in rows] == list(range(len(values)))
    return [row[1] for row in rows]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
async def test_a_text_arrives_alone_and_beside_others(store, text):
    assert await received(store, [text]) == [text]
    assert await received(store, [text, "plain", None, text]) == [text, "plain", None, text]


async def test_many_texts_arrive_in_their_order(store):
    assert await received(store, TEXTS) == TEXTS
    assert await received(store, [None, None]) == [None, None]
    assert await received(store, []) == []


async def test_numbers_and_times_arrive(store):
    moment = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    query = Query("given", "select a, b, c as c_at from {rows given: a id, b seconds, c time} order by position")
    rows = [(2**62, 0.1, moment), (-1, None, None), (None, 1e-7, moment.astimezone(UTC)), (0, 1e300, None)]

    assert [tuple(row) for row in await store.database.fetch(query, given=rows)] == rows


def test_numbers_are_written_as_postgresql_reads_them():
    assert postgres_arrays.numbers([1, None, -2.5]) == "{1,NULL,-2.5}"
    assert postgres_arrays.numbers([]) == "{}"
