"""The message browser: looking at messages without receiving them, and acting on one that was found."""
