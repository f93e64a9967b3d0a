"""Reports of other programs in our words: faults that other detectors found, jobs that Kubernetes started."""
