"""Who is asking: SigV4 signatures, bearer tokens, and the principal that both end in."""
