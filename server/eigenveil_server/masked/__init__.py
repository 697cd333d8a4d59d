"""Rounds whose answers are masked: who is ready, which sites an attempt is for, what each attempt costs.
Imports what a round of any kind is, and storage; holds no answer that anybody could read."""
