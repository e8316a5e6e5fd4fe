"""On which machine: links to nodes, and what is said over them."""
