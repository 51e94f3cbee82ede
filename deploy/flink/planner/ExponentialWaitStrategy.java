package org.apache.flink.client.program.rest.retry;

/**
 * Stands in for Flink's class of this name: how long a client waits before it asks again whether a job has
 * ended.
 *
 * <p>Flink's soon waits two seconds, which the job's launcher spends for nothing, twice: after the job of
 * one step and after the pipeline. This one waits half a second, and later a fiftieth of the time that has
 * passed, two seconds at most. For each question the JobManager copies all that it knows of the job, which
 * takes it a tenth of a second when 300 tasks have ended.
 */
public class ExponentialWaitStrategy implements WaitStrategy {

  private static final double MILLIS = 500;
  private static final double GROWTH = 1.02;
  // After so many questions, and so 25 seconds, half a second is a fiftieth of the time.
  private static final long EVEN = 50;

  private final long initialWait;
  private final long maxWait;

  public ExponentialWaitStrategy(long initialWait, long maxWait) {
    this.initialWait = initialWait;
    this.maxWait = maxWait;
  }

  @Override
  public long sleepTime(long attempt) {
    double usual = MILLIS * Math.pow(GROWTH, Math.max(0, attempt - EVEN));
    return (long) Math.min(maxWait, Math.min(usual, initialWait << Math.min(attempt, 20)));
  }
}
