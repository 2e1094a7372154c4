-- Each recorded step locked and looked up its run for this, a quarter of what a checkpoint costs the database. Steps are
-- written only under the lock of their run's message, and deleted with their run (docs/decisions/0012).
alter table pgqrs_workflow_steps drop constraint pgqrs_workflow_steps_run_id_fkey;
