"""Cost of secure aggregation: masks, whole rounds beside central ones, and a site's storage."""
