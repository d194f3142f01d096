"""The same job through the catalog DL_CATALOG: its statements have not changed. LAKE is where the data arrives."""

import os

from pyspark.sql import SparkSession

import deltalakedb.spark as dls

LAKE = os.environ["LAKE"]
ORDERS = "sales.orders"
DAILY = "sales.daily"

builder = dls.configure(SparkSession.builder.appName("daily"), os.environ["DL_CATALOG"])
spark = builder.getOrCreate()

arrived = spark.read.option("header", True).schema("id long, day date, amount double").csv(f"{LAKE}/arrived.csv")
arrived.createOrReplaceTempView("arrived")

spark.sql(
    f"merge into {ORDERS} t using arrived s on t.id = s.id "
    "when matched then update set * when not matched then insert *"
)
spark.sql(
    f"merge into {DAILY} t using (select day, count(*) orders, sum(amount) amount from {ORDERS} group by day) s "
    "on t.day = s.day when matched then update set * when not matched then insert *"
)
spark.sql(f"delete from {DAILY} where orders = 0")
spark.sql(f"optimize {ORDERS}")

for day, orders, amount in spark.table(DAILY).orderBy("day").collect():
    print(day, orders, amount)
