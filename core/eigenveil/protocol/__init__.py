"""What is said between machines: plans, round queries, releases, their messages and signatures. Draws no noise."""
