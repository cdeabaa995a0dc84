"""The in-cluster manager's state: nodes, partitions, replica sets."""
