"""Delays of the flights out of New York, as a Spark pipeline over Kafka topics. Copy it and make it yours.

    queries = start(ottla.spark.session(), "127.0.0.1:9092", "/somewhere/checkpoints")

It takes its session as an argument and uses PySpark's public DataFrame API only, so that it runs as it is on a laptop,
on a Spark cluster and through Spark Connect. `python -m examples.flights` feeds it and checks what it writes.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

FLIGHT = "carrier string, tailnum string, origin string, dep_delay long, arr_delay long"
WEATHER = "origin string, temp double, precip double, visib double, wind_speed double"


def events(spark: SparkSession, servers: str, topic: str, schema: str) -> DataFrame:
    """A topic's events: their JSON fields, and the record's own timestamp as event time. A day late is late."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    source = source.option("startingOffsets", "earliest").option("kafka.fetch.max.wait.ms", "10")
    parsed = source.load().select("timestamp", F.from_json(F.col("value").cast("string"), schema).alias("event"))
    return parsed.select("timestamp", "event.*").withWatermark("timestamp", "1 day")


def table(spark: SparkSession, servers: str, topic: str, key: str, schema: str) -> DataFrame:
    """A compacted topic as a table: each key's last value, without the keys whose last value is null."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    last = source.groupBy(F.col("key").cast("string").alias(key)).agg(F.max_by("value", "offset").alias("value"))
    row = F.from_json(F.col("value").cast("string"), schema).alias("row")
    return last.where("value IS NOT NULL").select(key, row).select(key, "row.*").cache()


def carrier_delays(flights: DataFrame, airlines: DataFrame, planes: DataFrame) -> DataFrame:
    """Each day's carriers: counts, sums and averages, ranked by average arrival delay, the worst first."""
    per_carrier = flights.join(planes, "tailnum", "left").groupBy(F.window("timestamp", "1 day"), "carrier")
    delays = per_carrier.agg(
        F.count("*").alias("flights"),
        F.count_if(F.isnull("dep_delay")).alias("cancelled"),
        F.count("arr_delay").alias("arrived"),
        F.count_if(F.col("arr_delay") > 15).alias("late"),
        F.sum("arr_delay").alias("delay_minutes"),
        F.avg("arr_delay").alias("average"),
        F.max("arr_delay").alias("worst_minutes"),
        F.sum(F.greatest("arr_delay", F.lit(0)) * F.col("seats")).alias("seat_minutes_lost"),
    )
    one = F.struct("average", "carrier", "name", *[name for name in delays.columns[2:] if name != "average"])
    ranking = delays.join(airlines, "carrier").groupBy("window").agg(F.sort_array(F.collect_list(one), asc=False))
    day = F.date_format("window.start", "yyyy-MM-dd").alias("day")
    ranked = ranking.select(day, F.posexplode(ranking.columns[1]).alias("rank", "of"))
    return ranked.select("day", (F.col("rank") + 1).alias("rank"), "of.*")


def weather_delays(flights: DataFrame, weather: DataFrame, airports: DataFrame) -> DataFrame:
    """Each week's departures by airport and by the weather of their hour: how many, how late, how many cancelled."""
    conditions = (
        F.when((F.col("precip") > 0) & (F.col("temp") < 34), "snow")
        .when(F.col("precip") > 0, "rain")
        .when(F.col("visib") < 3, "fog")
        .when(F.col("wind_speed") > 20, "wind")
        .otherwise("fair")
    )
    hour = F.window("timestamp", "1 hour").alias("hour")
    observed = weather.select("origin", hour, conditions.alias("weather"))
    departures = flights.groupBy("origin", hour).agg(  # before the join, which then keeps hours instead of flights
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("minutes"),
    )
    joined = departures.join(observed, ["origin", "hour"]).join(airports, "origin")
    week = F.window(F.window_time("hour"), "7 days", "7 days", "4 days").alias("week")  # Mondays: day 0 was a Thursday
    delays = joined.groupBy(week, "origin", F.col("name").alias("airport"), "weather").agg(
        F.sum("flights").alias("flights"),
        F.sum(F.col("flights") - F.col("departed")).alias("cancelled"),
        F.sum("minutes").alias("delay_minutes"),
        F.try_divide(F.sum("minutes"), F.sum("departed")).alias("average"),
    )
    return delays.select(F.date_format("week.start", "yyyy-MM-dd").alias("week"), *delays.columns[1:])


def write(rows: DataFrame, servers: str, topic: str, key: str, checkpoints: str) -> StreamingQuery:
    """Write each row, once its window is closed, as a JSON record to a topic."""
    value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    sink = rows.select(F.col(key).alias("key"), value.alias("value")).writeStream.format("kafka").queryName(topic)
    sink = sink.option("kafka.bootstrap.servers", servers).option("topic", topic)
    return sink.outputMode("append").option("checkpointLocation", f"{checkpoints}/{topic}").start()


def start(spark: SparkSession, servers: str, checkpoints: str) -> list[StreamingQuery]:
    """Start both queries: flights and weather in, carrier-delays and weather-delays out."""
    flights = events(spark, servers, "flights", FLIGHT)
    weather = events(spark, servers, "weather", WEATHER)
    airlines = table(spark, servers, "airlines", "carrier", "name string")
    planes = table(spark, servers, "planes", "tailnum", "seats long")
    airports = table(spark, servers, "airports", "origin", "name string")
    carriers = carrier_delays(flights, F.broadcast(airlines), F.broadcast(planes))
    conditions = weather_delays(flights, weather, F.broadcast(airports))
    return [
        write(carriers, servers, "carrier-delays", "carrier", checkpoints),
        write(conditions, servers, "weather-delays", "origin", checkpoints),
    ]
