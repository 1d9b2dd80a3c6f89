"""Traces, logs and metrics. Ids and counts only: never text of a fact, prompt or answer.

Nothing here raises into its caller or decides anything. `setup` is the one module that needs the
OpenTelemetry SDK; without it every span and measurement is a no-op.
"""
