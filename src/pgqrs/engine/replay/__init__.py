"""One pass over a handler: which branch asks, what was recorded there, and when the pass may be suspended."""
