"""The public API: what `import pgqrs` gives."""
