"""The bar above every page: who is signed in, the box that finds, the time range and the zone."""
