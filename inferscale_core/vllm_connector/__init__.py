"""Memory for an unmodified vLLM, through its KV-connector interface (vLLM 0.26 and 0.32).

`params` and `events` are what the worker service and the connector say to each other; everything
else here runs inside the engine.
"""
