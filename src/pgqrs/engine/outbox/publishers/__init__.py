"""Publishers: each hands one event of the outbox to one kind of receiver."""
