"""The message desk: looking at messages without receiving them, and acting on one that was found."""
