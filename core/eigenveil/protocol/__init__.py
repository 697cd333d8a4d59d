"""Plans, round queries, releases and authority lists, with their messages and signatures."""
