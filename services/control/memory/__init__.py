"""Facts and turns of a tenant's users."""
