"""What a site deploys beside the program: units, manifests, rules, examples. `foreshock deploy` lists and writes it."""
