"""Schema steps, named by UTC minute and subject."""
