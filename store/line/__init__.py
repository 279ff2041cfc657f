"""The line of queued jobs: read from Redis, or from SQL where Redis cannot tell."""
