"""Measures of success: rates with intervals, mesh distance, pose error."""
