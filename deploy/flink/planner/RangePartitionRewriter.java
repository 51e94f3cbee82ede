package org.apache.flink.optimizer.traversals;

import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.java.utils.ParameterTool;
import org.apache.flink.optimizer.plan.Channel;
import org.apache.flink.optimizer.plan.IterationPlanNode;
import org.apache.flink.optimizer.plan.OptimizedPlan;
import org.apache.flink.optimizer.plan.PlanNode;
import org.apache.flink.runtime.operators.shipping.ShipStrategyType;
import org.apache.flink.util.Visitor;

/**
 * Stands in for Flink's class of this name, which the job server runs when it plans a job.
 *
 * <p>Flink's walks every path, as UnionParallelismAndForwardEnforcer does. What it is for, range
 * partitioning, does not occur in a plan made by Beam; this one makes sure of that, node by node.
 *
 * <p>It also leaves a mark among the parameters of the job, which Flink only shows (/jobs/ID/config), so
 * that `python3 -m deploy.flink doctor` sees from outside which planner a job server has.
 */
public class RangePartitionRewriter implements Visitor<PlanNode> {

  private static final String MARK = "beam_dpne.planner";

  private final Set<PlanNode> visited = Collections.newSetFromMap(new IdentityHashMap<>());

  public RangePartitionRewriter(OptimizedPlan plan) {
    ExecutionConfig config = plan.getOriginalPlan().getExecutionConfig();
    Map<String, String> shown = new HashMap<>(config.getGlobalJobParameters().toMap());
    shown.put(MARK, "1");
    config.setGlobalJobParameters(ParameterTool.fromMap(shown));
  }

  @Override
  public boolean preVisit(PlanNode node) {
    return visited.add(node);
  }

  @Override
  public void postVisit(PlanNode node) {
    if (node instanceof IterationPlanNode) {
      ((IterationPlanNode) node).acceptForStepFunction(this);
    }
    for (Channel input : node.getInputs()) {
      if (input.getShipStrategy() == ShipStrategyType.PARTITION_RANGE) {
        throw new UnsupportedOperationException(
            "Plans must be made by Beam, which does not partition by range.");
      }
    }
  }
}
