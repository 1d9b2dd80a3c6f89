"""Things to run: the demo, and the conversation it is about."""
