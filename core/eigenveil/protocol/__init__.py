"""What machines say to each other: plans, round queries, releases, their messages and signatures."""
