"""The jobs that follow a write: encoding on the owning worker, and forgetting on every holder."""
