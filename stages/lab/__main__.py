"""Run the stage by hand: ``python -m stages.lab spam``."""

from stages.harness import Stage, main
from stages.lab import report, run, schema
from stages.lab.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="lab",
            params=Params,
            reads=schema.READS,
            files=schema.FILES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
