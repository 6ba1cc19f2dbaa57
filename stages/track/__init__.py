"""Stage `track`: push videos to object poses with covariance and status."""
