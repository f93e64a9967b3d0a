"""Models in service: training, scoring with reasons, drift, champion and challengers."""
