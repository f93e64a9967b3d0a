"""The JSON that others see: one class for each object of the API, the dashboard, `--json` and the sidecar."""
