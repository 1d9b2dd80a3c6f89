"""Shadow checks: some chats are prefilled once more when the engine is idle, and compared."""
