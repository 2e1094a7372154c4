"""`pgqrs serve`: the server, its connections, and what one client may take of it."""
