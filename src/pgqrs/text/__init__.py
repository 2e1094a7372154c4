"""Small languages that people and programs write: DSNs, durations, names, shell commands, wildcards."""
