package org.apache.flink.client.program.rest.retry;

/**
 * Stands in for Flink's class of this name: how long a client waits before it asks again whether a job has
 * ended.
 *
 * <p>Flink's waits up to two seconds, which the job's launcher spends for nothing, twice: after the job of
 * one step and after the pipeline. This one waits half a second at most.
 */
public class ExponentialWaitStrategy implements WaitStrategy {

  private static final long MOST_MILLIS = 500;

  private final long initialWait;
  private final long maxWait;

  public ExponentialWaitStrategy(long initialWait, long maxWait) {
    this.initialWait = initialWait;
    this.maxWait = Math.min(maxWait, MOST_MILLIS);
  }

  @Override
  public long sleepTime(long attempt) {
    return Math.min(maxWait, initialWait << Math.min(attempt, 20));
  }
}
