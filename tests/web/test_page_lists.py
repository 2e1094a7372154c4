"""Lists of the dashboard that are longer than a page are turned to their end, and back."""

import dataclasses
import re

import pgqrs
from pgqrs.web.pages import outbox, queues
from rig import http
from rig.asgi import Browser

flow = pgqrs.workflow("flow")


async def turned(browser, address, pattern):
    """What every page shows, one after the other, by its own links; the last one leads back to the first."""
    found = []
    while True:
        page = await browser.get(address)
        assert page.status == 200, page.text
        found.append(re.findall(pattern, page.text))
        following = re.findall(r'rel="next" href="([^"]+)"', page.text)
        if not following:
            back = re.findall(r'class="button" href="([^"]+)">First<', page.text)
            return found, back
        [address] = [each.replace("&amp;", "&") for each in following]


async def test_dead_letters_are_turned_page_by_page(store, monkeypatch, clock):
    monkeypatch.setattr(queues, "SHOWN_MESSAGES", 2)
    await store.create_queue("tasks")
    ids = await (await store.producer("tasks")).enqueue_many(range(5), max_attempts=1)
    async with await store.consumer("tasks") as consumer:
        assert len(await consumer.dequeue(5)) == 5
        clock.advance(3600)
        found, back = await turned(
            Browser(http.opened(store, read_only=True)), "/queues/tasks", r'id="dead"[\s\S]*?</section>'
        )
    shown = [re.findall(r'<th scope="row" class="n">(\d+)</th>', part) for [part] in found]

    assert [[int(each) for each in part] for part in shown] == [ids[:2], ids[2:4], ids[4:]]
    assert back == ["/queues/tasks"]


async def test_both_lists_of_the_outbox_are_turned_page_by_page(config, clock, monkeypatch):
    monkeypatch.setattr(outbox, "SHOWN", 2)
    published = dataclasses.replace(config, outbox="created")
    async with pgqrs.connect_with(published, install=True, clock=clock) as store:
        await store.create_workflow("flow")
        await flow.trigger_many(range(5)).execute(store)
        browser = Browser(http.opened(store, read_only=True))

        waiting, back = await turned(browser, "/outbox", r">run (\d+)<")
        assert (waiting, back) == ([["1", "2"], ["3", "4"], ["5"]], ["/outbox"])

        async def refuse(event):
            raise pgqrs.PublishFailed("no")

        await pgqrs.dispatcher(store).to(refuse).max_attempts(1).run_until_idle()
        dead, back = await turned(browser, "/outbox", r">run (\d+)<")
        assert (sorted(run for part in dead for run in part), [len(part) for part in dead]) == (
            ["1", "2", "3", "4", "5"],
            [2, 2, 1],
        )
        assert back == ["/outbox"]


async def test_a_cursor_that_is_none_is_refused(store):
    await store.create_queue("tasks")
    browser = Browser(http.opened(store, read_only=True))

    for address in ("/queues/tasks?dead=x", "/outbox?dead=x", "/outbox?unpublished=x", "/outbox?dead=a&dead=b"):
        assert (await browser.get(address)).status == 422, address
