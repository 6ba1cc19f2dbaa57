"""``python -m pipelines``: what needs DVC or Prefect."""

from pipelines.cli import main

main()
