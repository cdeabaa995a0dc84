"""The REST data API: `/v1/queues/{name}/messages`, JSON, bearer keys or SigV4, RFC 9457 problems."""
