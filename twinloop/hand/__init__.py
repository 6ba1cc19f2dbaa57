"""Robot models, kinematics and retargeting."""
