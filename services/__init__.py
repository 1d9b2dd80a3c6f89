"""The processes. They wire the core to gRPC and Postgres, and meet only over gRPC."""
