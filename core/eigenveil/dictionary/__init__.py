"""What columns mean: a public dictionary, studies that name them, and what sites state. Imports study."""
