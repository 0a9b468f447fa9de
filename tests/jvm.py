"""What every JVM of the tests is told: lives are short, so good code is not worth its making."""

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
DRIVER = {"spark.driver.extraJavaOptions": " ".join(QUICK)}
EXECUTOR = {"spark.executor.extraJavaOptions": " ".join(QUICK)}
