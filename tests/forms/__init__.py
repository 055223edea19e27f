"""What each op case converts to: the ops after `optimize()`, and what lint finds in them."""
