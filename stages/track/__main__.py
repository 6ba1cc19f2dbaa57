"""Run the stage by hand: ``python -m stages.track mug``."""

from stages.harness import Stage, main
from stages.track import report, run, schema
from stages.track.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="track",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
