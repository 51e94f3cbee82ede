package org.apache.flink.optimizer.traversals;

import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.apache.flink.optimizer.dag.BinaryUnionNode;
import org.apache.flink.optimizer.dag.DagConnection;
import org.apache.flink.optimizer.dag.IterationNode;
import org.apache.flink.optimizer.dag.OptimizerNode;
import org.apache.flink.runtime.operators.shipping.ShipStrategyType;
import org.apache.flink.util.Visitor;

/**
 * Stands in for Flink's class of this name, which the job server runs when it plans a job.
 *
 * <p>Flink's walks every path from the end of a plan to its sources. Each length of n-grams is the
 * side input of several steps of the next one, so the number of paths is exponential in the number of
 * lengths, and a plan of 26 is not ready in minutes. This one visits each node once; what it does to a
 * node is the same: a union takes the parallelism of the operator behind it, and hands its input on.
 */
public class UnionParallelismAndForwardEnforcer implements Visitor<OptimizerNode> {

  private final Set<OptimizerNode> visited = Collections.newSetFromMap(new IdentityHashMap<>());

  @Override
  public boolean preVisit(OptimizerNode node) {
    if (!visited.add(node)) {
      return false;
    }
    if (node instanceof BinaryUnionNode) {
      for (DagConnection output : node.getOutgoingConnections()) {
        output.setShipStrategy(ShipStrategyType.FORWARD);
        node.setParallelism(output.getTarget().getParallelism());
      }
    }
    return true;
  }

  @Override
  public void postVisit(OptimizerNode node) {
    if (node instanceof IterationNode) {
      ((IterationNode) node).acceptForStepFunction(this);
    }
  }
}
