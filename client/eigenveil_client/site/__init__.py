"""What runs beside a site's records. Imports `connection` and `records`; no analyst, simulation or demo."""
