"""Run the stage by hand: ``python -m stages.reconstruct mug``."""

from stages.harness import Stage, main
from stages.reconstruct import report, run, schema
from stages.reconstruct.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="reconstruct",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
