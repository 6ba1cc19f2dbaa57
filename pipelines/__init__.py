"""The executor and the Prefect flows."""
