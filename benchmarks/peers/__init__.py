"""The other products, each measured by a script of its own in an environment of its own. README.md says how."""
