"""Run the stage by hand: ``python -m stages.train mug``."""

from stages.harness import Stage, main
from stages.train import report, run, schema
from stages.train.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="train",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
