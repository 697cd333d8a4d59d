"""How costs grow with records, columns, components, sites and past studies: measured points, and pictures."""
