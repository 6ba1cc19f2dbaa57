"""Run the stage by hand: ``python -m stages.retarget mug``."""

from stages.harness import Stage, main
from stages.retarget import report, run, schema
from stages.retarget.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="retarget",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
