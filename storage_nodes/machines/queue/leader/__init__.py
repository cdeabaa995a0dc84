"""What only the leader of a queue partition keeps: who waits, and commands on their way."""
