"""Durable workflows and queues on the database you already have."""
