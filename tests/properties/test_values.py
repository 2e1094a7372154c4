"""Generated values through the whole way: equal in value and type when they come out, or refused at the call."""

import os

import pytest

import pgqrs
from rig.values import Values, same

COUNT = 100_000 if os.environ.get("PGQRS_SOAK") else 3_000
BATCH = 500
SEED = int(os.environ.get("PGQRS_SEED", "20261115"))


@pytest.mark.row("B7.1", "B7.3")
@pytest.mark.timeout(900)
async def test_what_goes_in_comes_out_equal_in_value_and_type(live_store):
    await live_store.create_queue("values")
    producer, consumer = await live_store.producer("values"), await live_store.consumer("values")
    values = Values(SEED)

    for start in range(0, COUNT, BATCH):
        sent = [values.good() for _ in range(BATCH)]
        ids = await producer.enqueue_many(sent)
        got = {m.id: m for m in await consumer.dequeue(BATCH)}
        for n, (message_id, value) in enumerate(zip(ids, sent, strict=True)):
            assert same(got[message_id].payload, value), f"PGQRS_SEED={SEED}, value {start + n}: {value!r}"
        assert len(await consumer.delete_many(got)) == BATCH


@pytest.mark.row("B7.2")
async def test_what_would_not_come_out_equal_is_refused_with_its_path(live_store):
    await live_store.create_queue("values")
    producer = await live_store.producer("values")
    values = Values(SEED)

    for n in range(COUNT // 10):
        value = values.bad()
        with pytest.raises(pgqrs.SerializationError) as caught:
            await producer.enqueue(value)
        inside = isinstance(value, list | tuple | dict)
        assert (caught.value.path != "$") == inside, f"PGQRS_SEED={SEED}, value {n}: {value!r}"

    assert (await pgqrs.admin(live_store).queue_metrics("values")).ready == 0
