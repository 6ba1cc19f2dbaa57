"""Run the stage by hand: ``python -m stages.ingest mug``."""

from stages.harness import Stage, main
from stages.ingest import report, run, schema
from stages.ingest.params import Params

if __name__ == "__main__":
    main(
        Stage(
            name="ingest",
            params=Params,
            reads=schema.READS,
            writes=schema.WRITES,
            run=run.run,
            metrics=report.metrics,
            plots=report.plots,
        )
    )
