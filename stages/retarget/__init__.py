"""From the human demonstration to the robot hand."""
