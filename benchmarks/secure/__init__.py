"""What secure aggregation costs: masks, whole rounds beside central ones, and what a site stores."""
