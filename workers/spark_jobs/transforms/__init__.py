"""Pure functions from frames to frames. They read no clock and no file; `jobs` does that."""
