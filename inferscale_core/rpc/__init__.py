"""gRPC: generated messages and stubs, how errors become statuses, interceptors, servers, channels."""
