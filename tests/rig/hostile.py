"""Sixty texts that would be more than text on a careless page; each fits on one line of a table."""

from __future__ import annotations

import json

from pgqrs.api.store import Store
from pgqrs.db.database import Database, Kind
from pgqrs.db.queries import Query

# What each would do on its own: call pwned(), which the tests watch for.
MARKUP = (
    "<script>pwned()</script>",
    "</script><script>pwned()</script>",
    "<SCRIPT SRC=//127.0.0.1:9/x.js></SCRIPT>",
    "<img src=x onerror=pwned()>",
    "<img src=x onerror='pwned()'>",
    '"><img src=x onerror=pwned()>',
    "'><img src=x onerror=pwned()>",
    "<svg onload=pwned()>",
    "<svg/onload=pwned()>",
    "<svg><script>pwned()</script></svg>",
    "<svg><animate onbegin=pwned() attributeName=x>",
    "<body onload=pwned()>",
    "<iframe srcdoc='<script>pwned()</script>'>",
    "<iframe src=javascript:pwned()>",
    "<object data=javascript:pwned()>",
    "<embed src=javascript:pwned()>",
    "<details open ontoggle=pwned()>",
    "<input autofocus onfocus=pwned()>",
    "<select autofocus onfocus=pwned()>",
    "<textarea autofocus onfocus=pwned()>",
    "</textarea><script>pwned()</script>",
    "</title><script>pwned()</script>",
    "</pre><script>pwned()</script>",
    "</code></bdi><script>pwned()</script>",
    "</option></select><script>pwned()</script>",
    "<video><source onerror=pwned()>",
    "<audio src=x onerror=pwned()>",
    "<marquee onstart=pwned()>",
    "<a href=javascript:pwned()>x</a>",
    "<form action=javascript:pwned()><button>",
    "<button formaction=javascript:pwned()>x",
    "<base href=//127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;url=javascript:pwned()'>",
    "<link rel=stylesheet href=//127.0.0.1:9/x.css>",
    "<style>@import '//127.0.0.1:9/x.css';</style>",
    "<style onload=pwned()></style>",
    "<math><mtext><script>pwned()</script>",
    "<template><script>pwned()</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=pwned()>'>",
    "<!--><script>pwned()</script>-->",
    "<![CDATA[<script>pwned()</script>]]>",
    "<x onclick=pwned() id=main>x</x>",
)
# Out of an attribute, an address, a template, a stylesheet.
ESCAPES = (
    '" onmouseover=pwned() x="',
    "' onmouseover=pwned() x='",
    "` onmouseover=pwned() x=`",
    'x" style="background:url(javascript:pwned())',
    "javascript:pwned()",
    "JaVaScRiPt:pwned()//",
    "data:text/html,<script>pwned()</script>",
    "vbscript:pwned()",
    "{{ 7 * 7 }}{{ self.__init__.__globals__ }}",
    "{% include 'base.html' %}",
    "${pwned()}",
    "%3Cscript%3Epwned()%3C/script%3E",
    "&lt;script&gt;pwned()&lt;/script&gt;",
    "\\u003cscript\\u003epwned()\\u003c/script\\u003e",
    "//evil.example/x",
    "../../../../etc/passwd",
    '?done=run.cancel&q="#main',
    "\u202egnp.exe\u202c \u2066x\u2069 \u200b",
)
CORPUS = MARKUP + ESCAPES


# -- in every column that holds text -----------------------------------------------------------------------

_QUEUES = Query(
    "hostile_queues",
    """
    insert into pgqrs_queues (name, created_at)
    select given.text, {now} from {rows given: text text} where true order by given.position""",
)
_WORKFLOWS = Query(
    "hostile_workflows",
    """
    insert into pgqrs_workflows (name, queue_id, created_at)
    select q.name, q.queue_id, {now} from pgqrs_queues as q order by q.queue_id""",
)
_RUNS = Query(
    "hostile_runs",
    """
    insert into pgqrs_workflow_runs
        (workflow_id, status, input, output, error, last_error, created_at, started_at, paused_at, completed_at,
         updated_at, worker_id, attempt, max_attempts, idempotency_key, waiting_for, attributes, deleted_at,
         delete_reason, error_signature, headers)
    select w.workflow_id, given.status, given.json, given.json, given.json, given.text, {now}, {now}, {now},
        case when given.status in ('SUCCESS', 'ERROR', 'CANCELLED') then {now} end, {now}, given.position + 1, 1, 3,
        given.text, given.text, given.json, case when given.status = 'CANCELLED' then {now} end, given.text, given.text,
        given.progress
    from {rows given: text text, status text, json json, progress json}
    join pgqrs_workflows as w on w.name = given.text
    order by given.position""",
)
_STEPS = Query(
    "hostile_steps",
    """
    insert into pgqrs_workflow_steps
        (run_id, step_id, ordinal, status, input, output, error, attempts, started_at, completed_at)
    select r.run_id, given.step, 0, given.status, given.json, given.json, given.json, 2, {now}, {now}
    from {rows given: text text, step text, status text, json json}
    join pgqrs_workflow_runs as r on r.idempotency_key = given.text
    where true""",
)
_EVENTS = Query(
    "hostile_events",
    """
    insert into pgqrs_workflow_events (run_id, event_type, data, actor, created_at)
    select r.run_id, given.kind, given.json, given.text, {now}
    from {rows given: text text, kind text, json json}
    join pgqrs_workflow_runs as r on r.idempotency_key = given.text
    where true""",
)
_WORKERS = Query(
    "hostile_workers",
    """
    insert into pgqrs_workers (queue_id, hostname, port, status, created_at, heartbeat_at, info)
    select q.queue_id, given.text, 0, 'READY', {now}, {now}, given.info
    from {rows given: text text, info json}
    join pgqrs_queues as q on q.name = given.text
    where true
    order by given.position""",
)
_MESSAGES = Query(
    "hostile_messages",
    """
    insert into pgqrs_messages (queue_id, payload, priority, visible_after, enqueued_at, attempts, max_attempts)
    select q.queue_id, given.json, 0, {now}, {now}, given.attempts, 3
    from {rows given: text text, json json, attempts int}
    join pgqrs_queues as q on q.name = given.text
    where true""",
)
_SCHEDULES = Query(
    "hostile_schedules",
    """
    insert into pgqrs_schedules
        (name, workflow, kind, cron, timezone, input, overlap, catch_up, catch_up_limit, created_at, updated_at,
         slots_after, next_slot_at, last_error)
    select given.text, given.text, 'cron', given.text, given.text, given.json, 'skip', 'last', 1, {now}, {now}, {now},
        {now}, given.text
    from {rows given: text text, json json}
    where true""",
)
_OUTBOX = Query(
    "hostile_outbox",
    """
    insert into pgqrs_outbox_events
        (event_uuid, aggregate_id, workflow, event_type, payload, created_at, visible_after, last_error, dead_at)
    select given.text, r.run_id, given.text, given.text, given.json, {now}, {now}, given.text,
        case when given.dead = 1 then {now} end
    from {rows given: text text, json json, dead int}
    join pgqrs_workflow_runs as r on r.idempotency_key = given.text
    where true""",
)
_RETENTION = Query(
    "hostile_retention",
    """
    insert into pgqrs_retention (what, workflow, status, keep_seconds, visible_after)
    select 'runs', given.text, '', 60, {now} from {rows given: text text} where true""",
)
_STATUSES = ("ERROR", "PAUSED", "SUCCESS", "RUNNING", "CANCELLED", "PENDING")


async def plant(store: Store) -> None:
    """Each text in every column that holds text: past all checks, as somebody who can write the database would."""
    told = {
        text: json.dumps({text: text, "step": text, "attempt": 1, "type": text, "message": text}) for text in CORPUS
    }

    async def write(unit: Database) -> None:
        await unit.execute(_QUEUES, given=[(text,) for text in CORPUS])
        await unit.execute(_WORKFLOWS)
        await unit.execute(
            _RUNS,
            given=[
                (text, _STATUSES[n % 6], told[text], json.dumps({"done": 1, "total": 2, "note": text}))
                for n, text in enumerate(CORPUS)
            ],
        )
        steps = [(text, f"wait_for:{text}" if n % 2 else text) for n, text in enumerate(CORPUS)]
        given = [(text, step, "PAUSED" if n % 2 else "ERROR", told[text]) for n, (text, step) in enumerate(steps)]
        await unit.execute(_STEPS, given=given)
        kinds = [(text, kind, told[text]) for text in CORPUS for kind in ("step_failed", text)]
        await unit.execute(_EVENTS, given=kinds)
        await unit.execute(
            _WORKERS,
            given=[(text, json.dumps({"handlers": [text], "version": text, "pid": text})) for text in CORPUS],
        )
        await unit.execute(_MESSAGES, given=[(text, told[text], attempts) for text in CORPUS for attempts in (0, 3)])
        await unit.execute(_SCHEDULES, given=[(text, told[text]) for text in CORPUS])
        await unit.execute(_OUTBOX, given=[(text, told[text], n % 2) for n, text in enumerate(CORPUS)])
        await unit.execute(_RETENTION, given=[(text,) for text in CORPUS])

    await store.database.perform(write, kind=Kind.UNIT, idempotent=False)
