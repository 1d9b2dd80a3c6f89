"""The worker: one model on one engine, the memory of the users routed to it, and their chunks."""
