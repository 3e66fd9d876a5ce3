"""How far a query has come, from the progress Spark reports after each batch."""

from dataclasses import dataclass, field

from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class Pace:
    """One query's progress so far; `look` takes in what is new."""

    query: StreamingQuery
    name: str
    rows: int = 0
    batches: int = 0
    #: rows that came later than the watermark allows; the results lack them
    dropped: int = 0
    #: milliseconds in which batches with input ran
    busy_ms: int = 0
    watermark: str = "-"
    _last: int = field(default=-1)

    @property
    def rate(self) -> float:
        """Input rows a second of the time in which batches ran."""
        return self.rows * 1000 / self.busy_ms if self.busy_ms else 0.0

    def look(self) -> None:
        """Take in the batches since the last look. Raises what ended the query, if anything did."""
        failure = self.query.exception()
        if failure is not None:
            raise failure
        last = self.query.lastProgress
        if last is None or last.batchId == self._last:
            return
        for progress in self.query.recentProgress:
            if progress.batchId <= self._last or "addBatch" not in progress.durationMs:
                continue  # seen, or a trigger that found nothing to do
            self._last = progress.batchId
            self.batches += 1
            self.rows += progress.numInputRows
            if progress.numInputRows:
                self.busy_ms += progress.durationMs["triggerExecution"]
            self.dropped += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
            if (mark := progress.eventTime.get("watermark", "1970")) > "1971":
                self.watermark = mark[:10]
