"""Run the stage by hand: ``python -m stages.package mug``."""

from stages.harness import Stage, main
from stages.package import report, run, schema
from stages.package.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="package",
            params=Params,
            reads=schema.READS,
            files=schema.FILES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
