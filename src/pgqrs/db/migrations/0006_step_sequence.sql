-- The order in which results reached the handler: a replay gives them to its branches in the same order.
-- Null for steps that were recorded before, and for those that did not end in a pass of the handler.
alter table pgqrs_workflow_steps add column sequence integer;
