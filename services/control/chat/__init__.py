"""Chats, routed to the worker that owns the user."""
