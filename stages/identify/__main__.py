"""Run the stage by hand: ``python -m stages.identify mug``."""

from stages.harness import Stage, main
from stages.identify import report, run, schema
from stages.identify.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="identify",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
