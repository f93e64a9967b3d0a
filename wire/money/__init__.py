"""GPU-hours in the currency of a site."""
