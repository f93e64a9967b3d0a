"""What a site deploys beside the program: units, manifests, chart, image, rules. `foreshock deploy` writes it."""
