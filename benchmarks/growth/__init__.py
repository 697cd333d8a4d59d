"""Costs by records, columns, components, sites and past studies: measured points, and pictures."""
