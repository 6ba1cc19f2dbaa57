"""Run the stage by hand: ``python -m stages.push mug``."""

from stages.harness import Stage, main
from stages.push import report, run, schema
from stages.push.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="push",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
