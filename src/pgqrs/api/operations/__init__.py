"""For operators: find runs, explain them, act on them, export, promote; the nouns as JSON."""
