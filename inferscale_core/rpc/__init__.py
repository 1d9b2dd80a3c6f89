"""gRPC: generated messages and stubs, errors as statuses, interceptors, servers and channels."""
