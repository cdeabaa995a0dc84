"""The Parquet lake: files that are listed in a manifest, and nothing else counts. Layout: docs/usage.md."""
