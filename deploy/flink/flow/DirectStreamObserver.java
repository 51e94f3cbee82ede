package org.apache.beam.sdk.fn.stream;

import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.stub.CallStreamObserver;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.stub.StreamObserver;

/**
 * Stands in for Beam's class of this name, by which a TaskManager sends data to its harness.
 *
 * <p>Beam's asks only before every hundredth message whether the harness has taken the ones before. A
 * message holds at least one element, and an element of ours may be a partition of the users, of many
 * megabytes, so that all input of a task would wait in direct memory. This one asks before each message.
 *
 * <p>It waits ten seconds at most and sends then, as Beam's would have done at once. Otherwise a task
 * could wait for ever: a harness may be unable to take more because the task, which reads what the
 * harness puts out only when it has sent all input, has no room for more than a hundred such messages.
 */
public final class DirectStreamObserver<T> implements StreamObserver<T> {

  private static final long MOST_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final Phaser phaser;
  private final CallStreamObserver<T> outbound;

  /** The phaser advances whenever the stream can take more. */
  public DirectStreamObserver(Phaser phaser, CallStreamObserver<T> outbound) {
    this.phaser = phaser;
    this.outbound = outbound;
  }

  @Override
  public synchronized void onNext(T message) {
    awaitReady();
    outbound.onNext(message);
  }

  @Override
  public synchronized void onError(Throwable failure) {
    outbound.onError(failure);
  }

  @Override
  public synchronized void onCompleted() {
    outbound.onCompleted();
  }

  private void awaitReady() {
    long until = System.nanoTime() + MOST_NANOS;
    int phase = phaser.getPhase();
    // A negative phase is that of a stream that has ended; then sending says why.
    while (phase >= 0 && !outbound.isReady()) {
      long left = until - System.nanoTime();
      if (left <= 0) {
        return;
      }
      try {
        phase = phaser.awaitAdvanceInterruptibly(phase, left, TimeUnit.NANOSECONDS);
      } catch (TimeoutException stillFull) {
        return;
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new RuntimeException(stopped);
      }
    }
  }
}
