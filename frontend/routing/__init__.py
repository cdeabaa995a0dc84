"""Which queue, which partition, which process: views of queues, partition choice, polls, bulkheads."""
