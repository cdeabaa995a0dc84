"""Message move tasks: dead-letter queues are emptied, a slice of work at a time."""
