"""Where a run is and what is next: its status table, supervisor, settlement, and the ports it needs."""
