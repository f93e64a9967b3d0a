"""The record of each check over the site's own history, and what it weighs by that."""
