"""Triggers that note under which lease a step was recorded and a run was ended.

The token is the message's at that moment, not the writer's: a writer without a fence is seen by the difference
between this note and its own line in the ledger.
"""

from __future__ import annotations

import pgqrs
from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import Query

NOTES = "chaos_notes"
END = "(end)"
TAKEN = "(taken)"

_ON_SQLITE = (
    f"create table {NOTES} (run_id integer, step_id text, lease_token integer)",
    *(
        f"""create trigger chaos_step_{verb} after {verb} on pgqrs_workflow_steps when new.status = 'SUCCESS' begin
            insert into {NOTES} values (new.run_id, new.step_id,
                (select m.lease_token from pgqrs_messages as m where m.run_id = new.run_id));
        end"""
        for verb in ("insert", "update")
    ),
    f"""create trigger chaos_end before delete on pgqrs_messages when old.run_id is not null begin
        insert into {NOTES} values (old.run_id, '{END}', old.lease_token);
    end""",
)

# The message may be gone by then, in the same statement: the token is null, and the note of the end tells.
_ON_POSTGRES = (
    f"create table public.{NOTES} (run_id bigint, step_id text, lease_token bigint)",
    f"""create function public.chaos_step() returns trigger language plpgsql as $$begin
        if new.status = 'SUCCESS' then
            insert into public.{NOTES} values (new.run_id, new.step_id,
                (select m.lease_token from pgqrs_messages as m where m.run_id = new.run_id));
        end if;
        return new;
    end$$""",
    """create trigger chaos_step before insert or update on pgqrs_workflow_steps
        for each row execute function public.chaos_step()""",
    f"""create function public.chaos_end() returns trigger language plpgsql as $$begin
        insert into public.{NOTES} values (old.run_id, '{END}', old.lease_token);
        return old;
    end$$""",
    """create trigger chaos_end before delete on pgqrs_messages
        for each row when (old.run_id is not null) execute function public.chaos_end()""",
    # Nobody cancels or pauses here: whoever gets a lease waited for the end of the one before.
    f"""create function public.chaos_taken() returns trigger language plpgsql as $$begin
        insert into public.{NOTES} values (coalesce(old.run_id, -old.message_id), '{TAKEN}', old.lease_token);
        return new;
    end$$""",
    """create trigger chaos_taken before update on pgqrs_messages for each row
        when (new.lease_token > old.lease_token and old.leased_by is not null and new.leased_by is not null
              and old.visible_after > clock_timestamp())
        execute function public.chaos_taken()""",
)


async def install_notes(store: pgqrs.Store) -> None:
    await _install(store.database)


@store_call(Kind.UNIT)
async def _install(db: Database) -> None:
    for statement in _ON_POSTGRES if db.dialect.is_postgres else _ON_SQLITE:
        await db.execute(Query("chaos_notes", statement))
