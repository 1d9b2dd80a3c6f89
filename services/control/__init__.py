"""The control plane: facts, tenants, jobs and routing. Stateless; Postgres holds everything."""
