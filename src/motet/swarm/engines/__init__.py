"""What moves bytes between nodes: zenoh, NATS, and this process's memory for tests, each behind `links.Link`."""
