"""What a queue is to the message path: its names, its attributes and their rules, and its record made ready for use."""
