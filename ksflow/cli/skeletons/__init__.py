"""What `init stage` writes, a file a kind: each runs as it is. They are copied, and imported by nobody."""
