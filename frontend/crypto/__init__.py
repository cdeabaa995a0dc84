"""Keys and envelopes: storage nodes and the database only ever see what this package sealed."""
