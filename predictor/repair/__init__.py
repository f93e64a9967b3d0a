"""The repair list: nodes that fail more than chance allows, the faulty part, tickets and RMA rows."""
