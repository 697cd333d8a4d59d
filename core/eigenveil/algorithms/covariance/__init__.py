"""Algorithms that release one noised matrix of products."""
