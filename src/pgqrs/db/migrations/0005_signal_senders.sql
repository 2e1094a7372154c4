-- Who sent it, as the caller was authenticated: beside the payload, which the sender writes.
alter table pgqrs_signals add column actor text;
