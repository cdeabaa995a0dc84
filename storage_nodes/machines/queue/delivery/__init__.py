"""What a leader can hand out, and in which order."""
