package org.apache.beam.sdk.util.construction.resources;

import io.github.classgraph.ClassGraph;
import java.io.File;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Stands in for Beam's class of this name, by which the job server finds the jars that go with each job.
 *
 * <p>Beam's sends the whole class path of the job server, 165 MB, to Flink and to each TaskManager. With
 * -Dbeam_dpne.jars_in_lib=true, for a cluster that has Beam's jars in its lib, nothing is sent.
 */
public class ClasspathScanningResourcesDetector implements PipelineResourcesDetector {

  private static final String JARS_IN_LIB = "beam_dpne.jars_in_lib";

  private final transient ClassGraph classGraph;

  public ClasspathScanningResourcesDetector(ClassGraph classGraph) {
    this.classGraph = classGraph;
  }

  @Override
  public List<String> detect(ClassLoader classLoader) {
    if (Boolean.getBoolean(JARS_IN_LIB)) {
      return List.of();
    }
    return classGraph.disableNestedJarScanning().addClassLoader(classLoader).getClasspathFiles()
        .stream()
        .map(File::getAbsolutePath)
        .collect(Collectors.toList());
  }
}
