"""Delays of the flights out of New York, as a Spark pipeline over Kafka topics. Copy and adapt it.

    queries = start(ottla.spark.session(), "127.0.0.1:9092", "/somewhere/checkpoints")

It runs unchanged on a laptop and on a cluster.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

# Each day's carriers, ranked by their average arrival delay, the worst first.
CARRIER_DELAYS = """
WITH delays AS (
  SELECT window, carrier, avg(arr_delay) average, max(arr_delay) worst_minutes, sum(arr_delay) delay_minutes,
         count(*) flights, count_if(dep_delay IS NULL) cancelled, count(arr_delay) arrived,
         count_if(arr_delay > 15) late, sum(greatest(arr_delay, 0) * seats) seat_minutes_lost
  FROM {flights} LEFT JOIN {planes} USING (tailnum) GROUP BY window(timestamp, '1 day'), carrier),
ranking AS (
  SELECT window, posexplode(sort_array(collect_list(struct(average, carrier, name, flights, cancelled, arrived, late,
         delay_minutes, worst_minutes, seat_minutes_lost)), false)) AS (place, of)
  FROM delays JOIN {airlines} USING (carrier) GROUP BY window)
SELECT date_format(window.start, 'yyyy-MM-dd') day, place + 1 rank, of.* FROM ranking
"""
# Each week's departures by airport and by the weather of their hour. Weeks begin on Thursday, as 1970 did.
WEATHER_DELAYS = """
WITH departures AS (  -- before the join, which then keeps hours instead of flights
  SELECT origin, window AS hour, count(*) flights, count(dep_delay) departed, sum(dep_delay) minutes
  FROM {flights} GROUP BY origin, window(timestamp, '1 hour')),
observed AS (
  SELECT origin, window(timestamp, '1 hour') AS hour, CASE WHEN precip > 0 AND temp < 34 THEN 'snow'
         WHEN precip > 0 THEN 'rain' WHEN visib < 3 THEN 'fog' WHEN wind_speed > 20 THEN 'wind' ELSE 'fair' END weather
  FROM {weather})
SELECT date_format(window.start, 'yyyy-MM-dd') week, origin, name airport, weather, sum(flights) flights,
       sum(flights - departed) cancelled, sum(minutes) delay_minutes, try_divide(sum(minutes), sum(departed)) average
FROM departures JOIN observed USING (origin, hour) JOIN {airports} USING (origin)
GROUP BY window(window_time(hour), '7 days'), origin, name, weather
"""


def start(spark: SparkSession, servers: str, checkpoints: str) -> list[StreamingQuery]:
    """Start both queries: flights and weather in, carrier-delays and weather-delays out."""
    kafka = {"kafka.bootstrap.servers": servers}
    follow = {"startingOffsets": "earliest", "kafka.fetch.max.wait.ms": "10"}

    def events(topic: str, schema: str) -> DataFrame:  # the record's timestamp is the event time; a day late is late
        source = spark.readStream.format("kafka").options(**kafka, **follow, subscribe=topic).load()
        parsed = source.select("timestamp", F.from_json(F.col("value").cast("string"), schema).alias("event"))
        return parsed.select("timestamp", "event.*").withWatermark("timestamp", "1 day")

    def table(topic: str, key: str, schema: str) -> DataFrame:  # each key's last value in a compacted topic
        source = spark.read.format("kafka").options(**kafka, subscribe=topic).load()
        last = source.groupBy(F.col("key").cast("string").alias(key)).agg(F.max_by("value", "offset").alias("value"))
        row = F.from_json(F.col("value").cast("string"), schema).alias("row")
        return F.broadcast(last.where("value IS NOT NULL").select(key, row).select(key, "row.*").cache())

    def write(rows: DataFrame, topic: str, key: str) -> StreamingQuery:  # each row once, when its window is closed
        value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")
        sink = rows.select(F.col(key).alias("key"), value).writeStream.format("kafka").queryName(topic)
        return sink.options(**kafka, topic=topic, checkpointLocation=f"{checkpoints}/{topic}").start()

    flights = events("flights", "carrier string, tailnum string, origin string, dep_delay long, arr_delay long")
    weather = events("weather", "origin string, temp double, precip double, visib double, wind_speed double")
    airlines, planes = table("airlines", "carrier", "name string"), table("planes", "tailnum", "seats long")
    airports = table("airports", "origin", "name string")
    carriers = spark.sql(CARRIER_DELAYS, flights=flights, planes=planes, airlines=airlines)
    conditions = spark.sql(WEATHER_DELAYS, flights=flights, weather=weather, airports=airports)
    return [write(carriers, "carrier-delays", "carrier"), write(conditions, "weather-delays", "origin")]
