"""Things to run: the demo, and the conversation it is about."""

import os

# Programs here start processes beside open gRPC channels and never use those in a fork; gRPC's own
# handling of forks would only warn about it. Read when grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
