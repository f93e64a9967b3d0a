"""The commands, one file each; `cli.main` lists them."""
