"""Plain queues: the processor behind `consumer.process`, and the leases of its messages."""
