"""The commands of `./penstock`, one module each: `run(options)` returns the exit code."""
