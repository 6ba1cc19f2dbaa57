"""Run the stage by hand: ``python -m stages.evaluate mug``."""

from stages.evaluate import report, run, schema
from stages.evaluate.params import Params
from stages.harness import Stage, main

if __name__ == "__main__":
    main(
        Stage(
            name="evaluate",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
