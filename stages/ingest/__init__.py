"""Phone video and tag board in; sharp, posed, undistorted, masked frames out."""
