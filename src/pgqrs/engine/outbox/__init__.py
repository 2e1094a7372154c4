"""The outbox: the role that publishes its events, the routes, and the publishers."""
