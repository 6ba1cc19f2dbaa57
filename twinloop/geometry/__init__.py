"""SE(3), quaternions, cameras and meshes."""
