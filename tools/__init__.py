"""Programs for whoever works on pgqrs itself."""
