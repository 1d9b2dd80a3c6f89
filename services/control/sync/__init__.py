"""What workers ask of control: changes of a user, and their own place in routing."""
