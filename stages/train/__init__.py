"""Force-aware grasp policy from the demonstration and the twin."""
